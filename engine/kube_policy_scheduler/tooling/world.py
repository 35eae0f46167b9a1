"""What offline commands look at: a cluster, a pod of it, and the rules that decide. Knows no files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.defaulting import AdmissionError
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quantity import QuantityError
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.diagnostics import Diagnostic, Source, Span, closest
from kube_policy_scheduler.documents.codes import WRONG_VALUE
from kube_policy_scheduler.documents.fixtures import FixtureObject, parse_objects
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_documents
from kube_policy_scheduler.framework.dynamic_resources.in_memory import give_claims_back, make_claims
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.kubernetes import kubernetes_profile
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.recorded import priority_classes, read_kind, stored
from kube_policy_scheduler.tooling.tester.short_forms import ShortFormError, pod_object

Recompile: TypeAlias = Callable[[Sequence[Source]], PolicySet | None]
"""From changed sources to policies; None where they have errors."""

_BY_NAME: Mapping[str, type] = {"Node": objects.Node, "Pod": objects.Pod}


class UnknownPod(ValueError):
    """There is no such pod, or there are several."""


@dataclass(frozen=True, slots=True)
class World:
    """A cluster with all its pods, also those that wait."""

    cluster: Cluster
    pods: Mapping[str, objects.Pod]
    """By `namespace/name`."""

    def find(self, name: str, *, namespace: str | None = None) -> objects.Pod:
        """Return a pod by its name, or by `namespace/name`.

        Raises:
            UnknownPod: none or several are of that name.
        """
        wanted = f"{namespace}/{name}" if namespace and "/" not in name else name
        if "/" in wanted:
            found = [key for key in self.pods if key == wanted]
        else:
            found = [key for key in self.pods if key.partition("/")[2] == wanted]
        if len(found) == 1:
            return self.pods[found[0]]
        if found:
            raise UnknownPod(f"several pods are named `{name}`: {', '.join(sorted(found))}; give --namespace")
        meant = closest(wanted, self.pods) or closest(wanted, (key.partition("/")[2] for key in self.pods))
        advice = f"did you mean `{meant}`?" if meant else f"the cluster has {len(self.pods)} pods"
        raise UnknownPod(f"there is no pod `{wanted}`: {advice}")

    def create(self, pod: objects.Pod) -> None:
        """Do for a pod from elsewhere what the cluster's controllers would: it gets the claims of its templates."""
        make_claims(self.cluster, pod)

    def pending(self) -> list[PodInfo]:
        """Return the pods without a node."""
        pods = (self.cluster.templates.pod(pod) for pod in self.pods.values() if not pod.spec.node_name)
        return [pod for pod in pods if not pod.terminal]

    def known(self, pod: objects.Pod) -> objects.Pod:
        """Return a pod that comes from elsewhere, such as a record, under the uid that it has here."""
        meta = pod.metadata
        here = self.pods.get(f"{meta.namespace}/{meta.name}")
        uid = here.metadata.uid if here is not None else meta.uid or f"{meta.namespace}/{meta.name}"
        return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(meta, uid=uid))


def world(things: Iterable[Any]) -> World:
    """Return the world that API objects make, in the order: other kinds, nodes, pods."""
    cluster = Cluster()
    pods: dict[str, objects.Pod] = {}
    later: list[objects.Pod] = []
    nodes: list[objects.Node] = []
    for thing in things:
        match thing:
            case objects.Node():
                nodes.append(thing)
            case objects.Pod():
                later.append(thing)
            case _:
                cluster.set_object(thing)
    for node in nodes:
        cluster.set_node(node)
    for pod in later:
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        pod.metadata.uid = pod.metadata.uid or key
        pods[key] = pod
        make_claims(cluster, pod)
        info = cluster.templates.pod(pod)
        if info.terminal:
            continue
        if info.node_name:
            cluster.place(info, info.node_name)
        elif info.nominated_node:
            cluster.nominate(info, info.nominated_node)
    return World(cluster, pods)


def recorded(found: Sequence[FixtureObject], *, scheduler: str) -> list[Any]:
    """Return recorded objects as the API server would store them; kinds that no rule reads are left out.

    Args:
        found: objects of fixture files.
        scheduler: the scheduler name of pods that name none.

    Raises:
        DocumentError: an object cannot be read; all problems are reported.
    """
    classes = priority_classes(found)
    done: list[Any] = []
    problems: list[Diagnostic] = []
    for one in found:
        kind = _BY_NAME.get(one.kind) or read_kind(one)
        if kind is None:
            continue
        try:
            done.append(stored(one, classes, scheduler=scheduler).convert(kind))
        except DocumentError as error:
            problems.extend(error.diagnostics)
        except (AdmissionError, QuantityError) as error:
            problems.append(one.error((), f"{one.kind} {one.name}: {error}"))
    if problems:
        raise DocumentError(problems)
    return done


def pod_in(source: Source) -> FixtureObject:
    """Return the pod of a file: a Pod as for `kubectl apply`, or the short form of policy tests.

    Raises:
        DocumentError: the file holds no pod, or several.
    """
    documents = parse_documents(source)
    if len(documents) == 1 and isinstance(documents[0].value, dict) and "kind" not in documents[0].value:
        try:
            made = pod_object(documents[0].value, name="pod", uid="pod")
        except ShortFormError as error:
            raise DocumentError([FixtureObject({}, documents[0], ()).error((error.key,), str(error))]) from error
        return FixtureObject(made, documents[0], ())
    found = [one for one in parse_objects(source) if one.kind == "Pod"]
    if len(found) != 1:
        message = f"expected one Pod, found {len(found)}"
        raise DocumentError([WRONG_VALUE.at(Span(source, 0, min(1, len(source.text))), message)])
    return found[0]


# --- what decides ----------------------------------------------------------------------------------------


def _cannot_recompile(sources: Sequence[Source]) -> PolicySet | None:
    return None


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides about the pod: one policy, or plain Kubernetes."""

    profile: Profile
    policy: Policy | None = None
    sources: tuple[Source, ...] = ()
    """The texts of all policies, for trying changes of them."""
    recompile: Recompile = field(default=_cannot_recompile, repr=False)

    def edited(self, source: Source, text: str) -> Rules | None:
        """Return the rules with another text of one source; None where that is no policy any more."""
        if self.policy is None or source not in self.sources:
            return None
        sources = tuple(Source(one.name, text) if one == source else one for one in self.sources)
        made = self.recompile(sources)
        policy = made.named(self.policy.name) if made is not None else None
        return None if policy is None else Rules(policy.profile, policy, sources, self.recompile)


KUBERNETES = Rules(kubernetes_profile())
"""Without policies."""


@dataclass(frozen=True, slots=True)
class Situation:
    """One decision to be explained, or tried with something changed."""

    pod: objects.Pod
    """As it waits: without `spec.nodeName`."""
    cluster: Cluster
    rules: Rules
    signals: Signals = Signals.EMPTY
    now: float = 0.0
    """Unix seconds."""
    seed: int = 0
    queued: float | None = None
    """Unix seconds at which the pod entered the queue; None: when it was created."""

    @property
    def profile(self) -> Profile:
        """Return the plugins that decide."""
        return self.rules.profile

    def info(self) -> PodInfo:
        """Return the pod as the cluster keeps it."""
        return self.cluster.templates.pod(self.pod)

    def frame(self) -> Frame:
        """Return the inputs of the decision, looking at all nodes."""
        info = self.info()
        queued = info.created if self.queued is None else self.queued
        return Frame(info, self.cluster, self.now, signals=self.signals, queued=queued)

    def held(self) -> str | None:
        """Return why the pod waits outside the active queue, or None."""
        return self.rules.policy.hold_reason(self.frame()) if self.rules.policy is not None else None

    def with_pod(self, spec: objects.PodSpec) -> Situation:
        """Return the situation with another spec of the pod."""
        return replace(self, pod=msgspec.structs.replace(self.pod, spec=spec))

    def with_rules(self, rules: Rules) -> Situation:
        """Return the situation under other rules."""
        return replace(self, rules=rules)

    @contextmanager
    def with_node(self, node: objects.Node) -> Iterator[Situation]:
        """Change or add a node while it lasts."""
        name = node.metadata.name
        row = self.cluster.nodes.rows.get(name)
        before = self.cluster.nodes.infos[row].node if row is not None else None
        self.cluster.set_node(node)
        try:
            yield self
        finally:
            if before is None:
                self.cluster.remove_node(name)
            else:
                self.cluster.set_node(before)


@contextmanager
def waiting(pod: objects.Pod, cluster: Cluster) -> Iterator[tuple[objects.Pod, str | None]]:
    """Take a bound pod off its node while it lasts; return it as it would wait, and the node it is on."""
    uid = pod.metadata.uid
    host = cluster.node_of(uid) or pod.spec.node_name or None
    devices = cluster.devices.held(uid) if cluster.devices.tables else None
    removed = cluster.displace(uid)
    free = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
    take_back = give_claims_back(cluster, cluster.templates.pod(free), ends=False)
    try:
        yield free, host
    finally:
        take_back()
        if removed is not None and host is not None:
            cluster.place(removed, host, devices=devices)


def is_of_node(pod: PodInfo) -> bool:
    """Return whether a pod belongs to its node: of a daemon set, or started by the kubelet from a file."""
    controller = pod.template.controller
    return (controller is not None and controller.kind in ("DaemonSet", "Node")) or (
        "kubernetes.io/config.mirror" in pod.annotations
    )
