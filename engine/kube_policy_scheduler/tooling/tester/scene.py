"""The cluster of a case: recorded objects, nodes and pods from short forms, with the API server's defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from typing import Any

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.defaulting import AdmissionError
from kube_policy_scheduler.cluster.nodes import NodeInfo
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quantity import QuantityError
from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.framework.cycle import Cycle
from kube_policy_scheduler.framework.dynamic_resources.in_memory import give_claims_back, make_claims, take_claims
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.tooling.cluster_state import priority_classes, read_kind, stored
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.device_forms import add_claims, add_devices
from kube_policy_scheduler.tooling.tester.expectation import NodeFacts
from kube_policy_scheduler.tooling.tester.short_forms import REGION, ZONE, ShortFormError, node_object, pod_object
from kube_policy_scheduler.tooling.tester.suite import Case, Part, Suite, did_you_mean


class Scene:
    """A cluster to decide in. What a case changes in it is taken back at the end of the case."""

    def __init__(self, cluster: Cluster, nodes: Mapping[str, FixtureObject], *, seed: int) -> None:
        self.cluster = cluster
        self.cycle = Cycle(seed=seed)
        self.facts: dict[str, NodeFacts] = {info.name: _facts(info) for info in cluster.nodes.infos}
        """By name."""
        self.nodes = dict(nodes)
        """As they were written, by name."""
        self._undo = ExitStack()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Take back at the end what is set and placed within."""
        outer = self._undo
        with ExitStack() as self._undo:
            yield
        self._undo = outer

    def set_node(self, node: objects.Node, written: FixtureObject) -> None:
        """Add or change a node."""
        name = node.metadata.name
        row = self.cluster.nodes.rows.get(name)
        if row is None:
            self._undo.callback(self._forget, name)
        else:
            self._undo.callback(self._restore, self.cluster.nodes.infos[row].node, self.nodes[name])
        self._restore(node, written)

    def set_devices(self, node_name: str, form: Mapping[str, Any]) -> None:
        """Publish other devices of a node."""
        before = {name: self.cluster.get(objects.ResourceSlice, f"{node_name}-{name}") for name in form}
        add_devices(self.cluster, node_name, form)
        for name, known in before.items():
            now = self.cluster.get(objects.ResourceSlice, f"{node_name}-{name}")
            if known is not None:
                self._undo.callback(self.cluster.set_object, known)
            else:
                self._undo.callback(self.cluster.remove_object, now)

    def place(self, pod: PodInfo, node_name: str) -> None:
        """Bind a pod."""
        self._undo.callback(take_claims(self.cluster, pod, node_name, now=0.0))
        self.cluster.place(pod, node_name)
        self._undo.callback(self.cluster.displace, pod.uid)

    def end(self, pod: PodInfo) -> None:
        """Remove a pod from its node."""
        node_name = self.cluster.node_of(pod.uid)
        if node_name is not None:
            self.cluster.displace(pod.uid)
            self._undo.callback(self.cluster.place, pod, node_name)
            self._undo.callback(give_claims_back(self.cluster, pod))

    def _restore(self, node: objects.Node, written: FixtureObject) -> None:
        name = node.metadata.name
        self.cluster.set_node(node)
        self.nodes[name] = written
        self.facts[name] = _facts(self.cluster.nodes.infos[self.cluster.nodes.rows[name]])

    def _forget(self, name: str) -> None:
        self.cluster.remove_node(name)
        del self.nodes[name], self.facts[name]


class SceneBuilder:
    """Makes the scenes of one suite."""

    def __init__(self, suite: Suite, recorded: Sequence[FixtureObject], *, scheduler: str) -> None:
        """Take a suite and what its `cluster` files hold.

        Args:
            suite: the test file.
            recorded: the objects of its cluster files.
            scheduler: the scheduler name of pods that name none.
        """
        self._suite = suite
        self._recorded = recorded
        self._scheduler = scheduler
        self._classes = priority_classes(recorded)

    def scene(self, *, shuffled: bool = False, seed: int) -> Scene:
        """Return the cluster of the file; `shuffled` adds the nodes in another order.

        Raises:
            DocumentError: a node or a pod cannot be made; all problems are reported.
        """
        found: list[Diagnostic] = []
        cluster = Cluster()
        nodes = {one.name: one for one in self._recorded if one.kind == "Node"}
        for one in self._recorded:
            if (kind := read_kind(one)) is not None:
                with _reporting(found, one):
                    cluster.set_object(self._stored(one).convert(kind))
        for part in self._suite.nodes:
            with self._reporting(found, part):
                node = self._node(part, nodes)
                nodes[node.name] = node
                add_devices(cluster, node.name, part.value.get("devices") or {})
        for name in _shuffled(list(nodes)) if shuffled else nodes:
            with _reporting(found, nodes[name]):
                cluster.set_node(self._stored(nodes[name]).convert(objects.Node))
        pods = [one for one in self._recorded if one.kind == "Pod"]
        for part in self._suite.pods:
            with self._reporting(found, part):
                pods.extend(self._placed(part, cluster))
        for one in pods:
            with _reporting(found, one):
                pod = self._info(one, cluster)
                if pod.node_name and not pod.terminal:
                    take_claims(cluster, pod, pod.node_name, now=0.0)
                    cluster.place(pod, pod.node_name)
        if found:
            raise DocumentError(found)
        return Scene(cluster, nodes, seed=seed)

    def lay_over(self, case: Case, scene: Scene) -> None:
        """Change a scene to what a case says.

        Raises:
            DocumentError: a node or a pod cannot be made; all problems are reported.
        """
        found: list[Diagnostic] = []
        for part in case.nodes:
            with self._reporting(found, part):
                node = self._node(part, scene.nodes)
                scene.set_devices(node.name, part.value.get("devices") or {})
                scene.set_node(self._stored(node).convert(objects.Node), node)
        for part in case.pods:
            with self._reporting(found, part):
                for one in self._placed(part, scene.cluster):
                    pod = self._info(one, scene.cluster)
                    scene.place(pod, pod.node_name)
        if found:
            raise DocumentError(found)

    def pod(self, pod: Part | FixtureObject, cluster: Cluster, *, name: str, uid: str) -> PodInfo:
        """Return a pod that is to be decided; `name` where it says none.

        Raises:
            DocumentError: it cannot be made.
        """
        found: list[Diagnostic] = []
        if isinstance(pod, FixtureObject):
            with _reporting(found, pod):
                spec = {key: value for key, value in (pod.value.get("spec") or {}).items() if key != "nodeName"}
                made = (pod.value.get("status") or {}).get("resourceClaimStatuses")
                waiting = {**pod.value, "spec": spec, "status": {"resourceClaimStatuses": made} if made else {}}
                return self._info(FixtureObject(waiting, pod.document, pod.path), cluster)
        else:
            with self._reporting(found, pod):
                made = pod_object(pod.value, name=name, uid=uid)
                add_claims(cluster, made["metadata"].get("namespace", "default"), pod.value.get("claims") or {})
                return self._info(FixtureObject(made, self._suite.document, pod.path), cluster)
        raise DocumentError(found)

    def _node(self, part: Part, nodes: Mapping[str, FixtureObject]) -> FixtureObject:
        name = part.value.get("name") or (part.value.get("metadata") or {}).get("name")
        if not name:
            raise DocumentError([self._error(part, (), "a node needs `name`")])
        under = nodes.get(name)
        made = node_object(part.value, over=under.value if under else None)
        return FixtureObject(made, self._suite.document, part.path)

    def _placed(self, part: Part, cluster: Cluster) -> list[FixtureObject]:
        form = part.value
        node = form.get("node") or (form.get("spec") or {}).get("nodeName")
        if not node:
            advice = "a pod that waits takes no part in a decision; the pod to decide stands in its case"
            raise DocumentError([self._error(part, (), "a pod in `pods` needs `node`, where it is", advice=advice)])
        if node not in cluster.nodes:
            advice = did_you_mean(node, cluster.nodes.names, none="the test has no nodes")
            problem = self._error(part, ("node",), f"unknown node `{node}`", code=codes.UNKNOWN_NODE, advice=advice)
            raise DocumentError([problem])
        namespace = form.get("namespace") or (form.get("metadata") or {}).get("namespace", "default")
        add_claims(cluster, namespace, form.get("claims") or {})
        count = form.get("count")
        base = form.get("name") or "-".join(str(step) for step in part.path)
        names = [f"{base}-{number}" for number in range(count)] if count else [base]
        made = (pod_object({**form, "name": name}, name=name, uid=f"{part.path}/{name}") for name in names)
        return [FixtureObject(one, self._suite.document, part.path) for one in made]

    def _info(self, recorded: FixtureObject, cluster: Cluster) -> PodInfo:
        pod = self._stored(recorded).convert(objects.Pod)
        pod.metadata.uid = pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"
        make_claims(cluster, pod)
        return cluster.templates.pod(pod)

    def _stored(self, recorded: FixtureObject) -> FixtureObject:
        return stored(recorded, self._classes, scheduler=self._scheduler)

    def _error(
        self, part: Part, steps: tuple[str, ...], message: str, *, code: Code = codes.BAD_FIXTURE, advice: str = ""
    ) -> Diagnostic:
        return self._suite.document.error((*part.path, *steps), code, message=message, advice=advice)

    @contextmanager
    def _reporting(self, found: list[Diagnostic], part: Part) -> Iterator[None]:
        try:
            yield
        except ShortFormError as error:
            found.append(self._error(part, (error.key,), str(error)))
        except DocumentError as error:
            found.extend(error.diagnostics)
        except (AdmissionError, QuantityError) as error:
            found.append(self._error(part, (), str(error)))


@contextmanager
def _reporting(found: list[Diagnostic], recorded: FixtureObject) -> Iterator[None]:
    """Turn what a bad object raises into diagnostics that point at it."""
    try:
        yield
    except DocumentError as error:
        found.extend(error.diagnostics)
    except (AdmissionError, QuantityError) as error:
        found.append(recorded.error((), f"{recorded.kind} {recorded.name}: {error}"))


def _shuffled(names: list[str]) -> list[str]:
    """Return names in another order, always the same one."""
    other = sorted(names, key=lambda name: blake2b(name.encode(), digest_size=8).digest())
    return other if other != names else other[::-1]


def _facts(info: NodeInfo) -> NodeFacts:
    labels = info.labels
    return NodeFacts(info.name, labels, labels.get(ZONE), labels.get(REGION), info.conditions.get("Ready") == "True")
