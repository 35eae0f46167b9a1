"""Runs one case: its cluster, its metrics, its pods decided one after another, and its queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Any, Protocol

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.defaulting import AdmissionError
from kube_policy_scheduler.cluster.node_identities import NodeIdentities
from kube_policy_scheduler.cluster.nodes import NodeInfo
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signal_join import SignalColumns, SignalState
from kube_policy_scheduler.cluster.signal_values import ValueTables
from kube_policy_scheduler.cluster.signals import About, Query, Signals
from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import Fleet, Workload
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.reserve.claims_in_memory import make_claims, take_claims
from kube_policy_scheduler.kubernetes_rules import KubernetesRules
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.policy.answer import Answer, Answers
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.policy.pending import Pending
from kube_policy_scheduler.quantities.quantity import QuantityError
from kube_policy_scheduler.times import parse_duration
from kube_policy_scheduler.tooling.cluster_state import priority_classes, read_kind, stored_object
from kube_policy_scheduler.tooling.short_forms import (
    REGION,
    ZONE,
    ShortFormError,
    add_claims,
    add_devices,
    device_kinds,
    node_object,
    pod_object,
    topology_object,
    volume_room_objects,
)
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.metrics import RESERVED, Metrics, is_series, series_labels
from kube_policy_scheduler.tooling.tester.outcome import (
    Outcome,
    TestedPolicies,
    TestedPolicy,
    Warned,
    outcome_of,
)
from kube_policy_scheduler.tooling.tester.queue_order import Waiting
from kube_policy_scheduler.tooling.tester.suite_file import Case, Kind, Part, Path, Step, Suite, did_you_mean
from kube_policy_scheduler.tooling.tester.wanted import NodeFacts
from kube_policy_scheduler.tooling.undoable_cluster import UndoableCluster
from kube_policy_scheduler.tooling.waiting_members import WaitingMembers


class CaseCluster(UndoableCluster):
    """A cluster to decide in. What a case changes in it is taken back at the end of the case."""

    def __init__(self, cluster: Cluster, nodes: Mapping[str, FixtureObject], *, seed: int) -> None:
        super().__init__(cluster)
        self.answers = Answers(seed=seed)
        self.facts: dict[str, NodeFacts] = {info.name: _facts(info) for info in cluster.nodes.infos}
        """By name."""
        self.nodes = dict(nodes)
        """As they were written, by name."""

    def write_node(self, node: objects.Node, written: FixtureObject) -> None:
        """Add or change a node as it is written."""
        name = node.metadata.name
        known = self.nodes.get(name), self.facts.get(name)
        self.set_node(node)
        self._describe(name, written, _facts(self.cluster.nodes.infos[self.cluster.nodes.rows[name]]))
        self.undo_by(lambda: self._describe(name, *known))

    def _describe(self, name: str, written: FixtureObject | None, facts: NodeFacts | None) -> None:
        if written is None or facts is None:
            del self.nodes[name], self.facts[name]
        else:
            self.nodes[name], self.facts[name] = written, facts

    def set_devices(self, node_name: str, form: Mapping[str, Any]) -> None:
        """Publish other devices of a node."""
        names = [f"{node_name}-{name}" for name in form]
        before = {name: self.cluster.get(objects.ResourceSlice, name) for name in names}
        add_devices(self.cluster, node_name, form)
        for name, known in before.items():
            now = self.cluster.get(objects.ResourceSlice, name)
            if known is not None:
                self.undo_by(partial(self.cluster.set_object, known))
            else:
                self.undo_by(partial(self.cluster.remove_object, now))


class CaseClusterBuilder:
    """Makes the clusters of one suite."""

    def __init__(
        self, suite: Suite, recorded: Sequence[FixtureObject], *, scheduler: str, kubernetes: KubernetesRules
    ) -> None:
        """Take a suite and what its `cluster` files hold.

        Args:
            suite: the test file.
            recorded: the objects of its cluster files.
            scheduler: the scheduler name of pods that name none.
            kubernetes: by whose rules pods are decided.
        """
        self._suite = suite
        self._kubernetes = kubernetes
        self._recorded = recorded
        self._scheduler = scheduler
        self._classes = priority_classes(recorded)

    def case_cluster(self, *, shuffled: bool = False, seed: int) -> CaseCluster:
        """Return the cluster of the file; `shuffled` adds the nodes in another order.

        Raises:
            DocumentError: a node or a pod cannot be made; all problems are reported.
        """
        found: list[Diagnostic] = []
        cluster = Cluster(self._kubernetes)
        nodes = {one.name: one for one in self._recorded if one.kind == "Node"}
        topologies: list[objects.NodeResourceTopology] = []
        for one in self._recorded:
            if (kind := read_kind(one)) is not None:
                with _reporting(found, one):
                    made: Any = self._stored(one).convert(kind)
                    if isinstance(made, objects.NodeResourceTopology):
                        topologies.append(made)
                    else:
                        cluster.set_object(made)
        for part in self._suite.nodes:
            with self._reporting(found, part):
                node = self._node(part, nodes)
                nodes[node.name] = node
                add_devices(cluster, node.name, device_kinds(part.value.get("devices") or {}))
                if "numa" in part.value:
                    topologies.append(topology_object(node.name, part.value["numa"]))
                for made in volume_room_objects(cluster, node.name, part.value.get("volume_room") or {}):
                    cluster.set_object(made)
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
        for topology in topologies:  # they know of the pods that run
            cluster.set_object(topology)
        if found:
            raise DocumentError(found)
        return CaseCluster(cluster, nodes, seed=seed)

    def member(self, nodes: Sequence[Part], pods: Sequence[Part]) -> Cluster:
        """Return a member of a fleet: a cluster with these nodes and pods alone.

        Raises:
            DocumentError: a node or a pod cannot be made; all problems are reported.
        """
        suite = replace(self._suite, nodes=tuple(nodes), pods=tuple(pods))
        builder = CaseClusterBuilder(suite, (), scheduler=self._scheduler, kubernetes=self._kubernetes)
        return builder.case_cluster(seed=0).cluster

    def lay_over(self, case: Case, case_cluster: CaseCluster) -> None:
        """Change a cluster to what a case says.

        Raises:
            DocumentError: a node or a pod cannot be made; all problems are reported.
        """
        found: list[Diagnostic] = []
        topologies: dict[str, objects.NodeResourceTopology] = {}
        for part in case.nodes:
            with self._reporting(found, part):
                node = self._node(part, case_cluster.nodes)
                case_cluster.set_devices(node.name, device_kinds(part.value.get("devices") or {}))
                if "numa" in part.value:
                    topologies[node.name] = topology_object(node.name, part.value["numa"])
                for made in volume_room_objects(case_cluster.cluster, node.name, part.value.get("volume_room") or {}):
                    case_cluster.set_object(made)
                case_cluster.write_node(self._stored(node).convert(objects.Node), node)
        for part in case.pods:
            with self._reporting(found, part):
                for one in self._placed(part, case_cluster.cluster):
                    pod = self._info(one, case_cluster.cluster)
                    case_cluster.place(pod, pod.node_name)
                    known = case_cluster.cluster.get(objects.NodeResourceTopology, pod.node_name)
                    if known is not None:
                        topologies.setdefault(pod.node_name, known)
        for topology in topologies.values():
            case_cluster.set_object(topology)
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
            advice = "a pending pod does not affect a decision; write the pod to decide in its case"
            raise DocumentError([self._error(part, (), "a pod in `pods` needs `node`", advice=advice)])
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
        return stored_object(recorded, self._classes, scheduler=self._scheduler)

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


_Degraded = tuple[frozenset[str], tuple[Warned, ...]]


class Readings:
    """The signals of every case, made once where cases have them in common."""

    def __init__(self, suite: Suite, queries: Sequence[Query]) -> None:
        self._document: Document = suite.document
        self._suite = suite
        self._queries = queries
        self._of_nodes = {query.promql for query in queries if query.about is About.NODES}
        self._metrics: dict[int, Metrics] = {}
        self._signals: dict[tuple[int, float, float], Signals] = {}
        self._columns, self._tables = SignalColumns(), ValueTables()
        self._degraded: dict[tuple[int, int], tuple[Signals, _Degraded]] = {}

    def problems(self) -> Iterator[Diagnostic]:
        """Yield what is wrong with the metrics of the file and of all its cases, apart from the nodes they name."""
        parts = [self._suite.metrics]
        cases = chain(self._suite.cases, (one.case for one in self._suite.forall))
        parts += {case.metrics.path: case.metrics for case in cases if case.metrics is not None}.values()
        for part in parts:
            yield from self._of_part(part)

    def unknown_nodes(self, case: Case, known: Collection[str], *, noun: str = "node") -> Iterator[Diagnostic]:
        """Yield an error for every value of a node, or a cluster of a fleet, that the case does not have."""
        for part in (self._suite.metrics, case.metrics):
            for query, answer in part.value.items() if part is not None else ():
                if query in RESERVED or not isinstance(answer, dict) or answer.keys() == {"value", "age"}:
                    continue
                if query not in self._of_nodes:
                    continue
                for node in answer.keys() - {*known}:
                    assert part is not None
                    advice = did_you_mean(node, tuple(known), none=f"the test has no {noun}s")
                    message = f"unknown {noun} `{node}`"
                    path = (*part.path, query, node)
                    yield self._document.error(path, codes.UNKNOWN_NODE, message=message, advice=advice, key=True)

    def signals(self, case: Case, now: float) -> Signals:
        """Return what the queries answer at a time of a case.

        Raises:
            DocumentError: the test says nothing of a query that the policies read.
        """
        key = id(case.metrics)
        metrics = self._metrics.get(key)
        if metrics is None:
            metrics = Metrics().over(self._suite.metrics.value)
            if case.metrics is not None:
                metrics = metrics.over(case.metrics.value)
            self._require_all(case, metrics)
            self._metrics[key] = metrics
        known = self._signals.get((key, case.start, now))
        if known is None:
            known = metrics.signals(self._queries, now=now, start=case.start)
            self._signals[key, case.start, now] = known
        return known

    def degraded_queries(self, case_cluster: CaseCluster, signals: Signals, now: float) -> _Degraded:
        """Return the queries that lack a fresh value on some node, and what does not fit about the answers."""
        nodes = NodeIdentities(case_cluster.cluster.nodes)
        key = (id(case_cluster), nodes.identity_version)
        before = self._degraded.get(key)
        if before is not None and before[0] is signals:
            return before[1]
        degraded, warned = [], []
        for query in self._queries:
            if query.about is not About.NODES:
                table = self._tables.table(query, signals=signals, now=now)
                age = 0.0 if table is None else query.stale_after_seconds - table.reading.age_seconds(now)
                if table is None or table.missing(usable_age=age):
                    degraded.append(query.promql)
                warned += [Warned("", f"{query.promql}: {each}") for each in (table.problems if table else ())]
                continue
            column = self._columns.column(query, signals=signals, nodes=nodes, now=now)
            if column.state is not SignalState.FRESH or column.missing:
                degraded.append(query.promql)
            if column.join is not None:
                warned += [Warned("", f"{query.promql}: {problem}") for problem in column.join.problems()]
        findings = frozenset(degraded), tuple(warned)
        self._degraded[key] = signals, findings
        return findings

    def _require_all(self, case: Case, metrics: Metrics) -> None:
        for query in self._queries:
            if metrics.says(query):
                continue
            message = f"no series for `{query.promql}`, which the policies read"
            advice = f"add it under `metrics`, or write `absent: [{query.promql}]`"
            where = self._suite.metrics.path if case.metrics is None else case.metrics.path
            problem = self._document.error(where, codes.UNDEFINED_METRIC, message=message, advice=advice)
            raise DocumentError([problem])

    def _of_part(self, part: Part) -> Iterator[Diagnostic]:
        """Yield metrics that no policy reads, texts that are no series, and series that are there twice."""
        known = [query.promql for query in self._queries]
        form = part.value
        names: list[tuple[Path, str]] = [((key,), key) for key in form if key not in RESERVED]
        names += [(("absent", index), query) for index, query in enumerate(form.get("absent", ()))]
        names += [
            (("outages", index, "query"), outage["query"])
            for index, outage in enumerate(form.get("outages", ()))
            if "query" in outage
        ]
        for path, query in names:
            if query not in known:
                advice = did_you_mean(query, known, none="the policies read no metrics")
                message = f"no policy reads the metric `{query}`"
                place = (*part.path, *path)
                yield self._document.error(place, codes.UNKNOWN_METRIC, message=message, advice=advice, key=True)
        first: dict[frozenset[tuple[str, str]], str] = {}
        for text in form.get("series", {}):
            place = (*part.path, "series", text)
            if not is_series(text):
                message = f'`{text}` is not a series, expected a name and labels such as cpu_usage{{node="a1"}}'
                yield self._document.error(place, codes.UNKNOWN_METRIC, message=message, key=True)
                continue
            labels = frozenset(series_labels(text).items())
            if first.setdefault(labels, text) != text:
                message = f"the series `{text}` appears here twice, as `{first[labels]}`"
                yield self._document.error(place, codes.DUPLICATE_SERIES, message=message, key=True)
        for index, outage in enumerate(form.get("outages", ())):
            if "to" in outage and parse_duration(outage["to"]) <= parse_duration(outage["from"]):
                message = f"the outage ends at {outage['to']}, before it begins at {outage['from']}"
                place = (*part.path, "outages", index, "to")
                yield self._document.error(place, codes.BAD_FIXTURE, message=message)


Observe = Callable[[Case, Frame, TestedPolicy], None]
"""Called before each decision, and for each pod of a queue, while the cluster is as the decision finds it."""


class ObserveWorkload(Protocol):
    """Called before each decision about a workload, and before its replicas may move."""

    def __call__(self, workload: Workload, fleet: Fleet, policies: FleetPolicies, given: Given, *, moves: bool) -> None:
        """Look at what is decided."""
        ...


@dataclass(frozen=True, slots=True)
class RunContext:
    """What all cases of a run have in common."""

    document: Document
    builder: CaseClusterBuilder
    readings: Readings
    policies: TestedPolicies
    observe: Observe | None = None
    fleet: Sequence[Part] = ()
    """The clusters of a fleet."""
    workloads: Sequence[Part] = ()
    """What runs in them already."""
    observe_workload: ObserveWorkload | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision of a case, and what can be asked about it until the next is made."""

    step: Step
    outcome: Outcome
    policy: TestedPolicy
    answer: Answer
    in_full: Callable[[], Outcome]
    """Returns the same outcome, with what every filter alone says."""

    @property
    def frame(self) -> Frame:
        """Return what rules looked at."""
        return self.answer.inputs.frame()


class CaseRunner:
    """Runs one case on one cluster."""

    def __init__(
        self, case: Case, case_cluster: CaseCluster, context: RunContext, *, answers: Answers | None = None
    ) -> None:
        """answers: by another seed than those of the cluster; None: these."""
        self._case = case
        self._case_cluster = case_cluster
        self._context = context
        self._answers = answers or case_cluster.answers
        self._hosts: dict[str, str] = {}
        """Node by uid, also of pods that wait for their gang."""
        self._pods: dict[str, PodInfo] = {}
        self._members = WaitingMembers()
        self._pending: dict[str, tuple[PodInfo, Step]] = {}
        """By uid: pods without a node of a policy with `backfill`, which others must not delay."""
        self.open_to: set[str] = set()
        """Nodes that were feasible for any of the pods."""

    def placed(self) -> Counter[str]:
        """Return how many pods of the case are on each node for good."""
        return Counter(host for uid, host in self._hosts.items() if uid not in self._members)

    def queues(self) -> dict[str, int]:
        """Return how many pods on nodes belong to each queue, or to one below it."""
        usage = self._case_cluster.cluster.quota_usage
        return {state.name: state.pods for state in usage.states()} if usage is not None else {}

    def decisions(self, *, in_full: bool) -> Iterator[Decided]:
        """Decide the pods; where one goes is so once the next is asked for.

        Args:
            in_full: whether to ask every filter alone.

        Raises:
            DocumentError: a pod cannot be made, or no policy governs it.
        """
        case, case_cluster = self._case, self._case_cluster
        now = case.now
        names = planned_names(case)
        for step in case.steps:
            now += step.after_seconds
            if step.finished is not None:
                self._finish(step.finished)
            for repeat in range(step.count):
                now += step.every_seconds if repeat else 0.0
                self._give_back(now)
                pod, name, uid = step.pod, next(names), case.name
                if case.kind is not Kind.ONE and isinstance(pod, Part):
                    pod, uid = Part({**pod.value, "name": name}, pod.path), f"{case.name}/{name}"
                info = self._context.builder.pod(pod, case_cluster.cluster, name=name, uid=uid)
                if isinstance(pod, Part) and "previous_node" in pod.value:
                    case_cluster.ran_before(info, pod.value["previous_node"])
                decided = self._decided(step, info, now, in_full=in_full)
                yield decided
                self._settle(decided, now)

    def waiting(self) -> list[Waiting]:
        """Return the pods of a queue, each with the policy that governs it; calls `observe` for each.

        Raises:
            DocumentError: as `decisions`.
        """
        case, case_cluster = self._case, self._case_cluster
        found = []
        for step, name in zip(case.steps, planned_names(case), strict=True):
            assert isinstance(step.pod, Part)
            pod = Part({**step.pod.value, "name": name}, step.pod.path)
            info = self._context.builder.pod(pod, case_cluster.cluster, name=name, uid=f"{case.name}/{name}")
            policy = self._governing(step, info)
            frame = self._inputs(step, info, policy, case.now).frame()
            found.append(Waiting(policy, frame))
            if self._context.observe is not None:
                self._context.observe(case, frame, found[-1].policy)
        return found

    # --- a decision ----------------------------------------------------------------------------------

    def _decided(self, step: Step, pod: PodInfo, now: float, *, in_full: bool) -> Decided:
        case, context = self._case, self._context
        policy = self._governing(step, pod)
        inputs = self._inputs(step, pod, policy, now)
        frame, found = inputs.frame(), list[Answer]()
        if context.observe is not None:
            context.observe(case, frame, policy)
        degraded, warned = context.readings.degraded_queries(self._case_cluster, frame.signals, now)
        warnings = (*(Warned(one.code, one.message) for one in context.policies.warnings), *warned)

        def made(*, in_full: bool) -> Outcome:
            found[:] = (self._answers.answer(inputs),)
            done = outcome_of(found[0], policy, in_full=in_full)
            return replace(done, degraded=degraded, warnings=warnings)

        outcome = made(in_full=in_full)
        self.open_to |= outcome.totals.keys()
        if outcome.victims and case.kind is Kind.SEQUENCE:
            victims = outcome.victims
            for name in victims:
                self._remove(next(pod for pod in self._case_cluster.cluster.pods.values() if pod.name == name))
            outcome = replace(made(in_full=in_full), victims=victims)
            self.open_to |= outcome.totals.keys()
            answer = found[0]
            return Decided(step, outcome, policy, answer, lambda: replace(made(in_full=True), victims=victims))
        return Decided(step, outcome, policy, found[0], lambda: made(in_full=True))

    def _inputs(self, step: Step, pod: PodInfo, policy: TestedPolicy, now: float) -> DecisionInputs:
        """Return what a decision at `now` (Unix seconds) follows from."""
        case = self._case
        waited = case.queued_seconds if step.queued_seconds is None else step.queued_seconds
        return DecisionInputs(
            pod,
            self._case_cluster.cluster,
            policy.rules,
            self._context.readings.signals(case, now),
            now,
            queued=now - waited,
            attempts=case.attempts,
            pending=Pending(other for other, _ in self._pending.values()) if self._backfills(policy) else None,
        )

    def _governing(self, step: Step, pod: PodInfo) -> TestedPolicy:
        policy = self._context.policies.governing(pod)
        if policy is None:
            message = f"no policy governs the pod: its scheduler is `{pod.scheduler_name}`"
            path = step.pod.path if isinstance(step.pod, Part) else self._case.path
            raise DocumentError([self._context.document.error(path, codes.NOT_GOVERNED, message=message)])
        return policy

    # --- what follows from it ------------------------------------------------------------------------

    def _settle(self, decided: Decided, now: float) -> None:
        outcome = decided.outcome
        if self._case.kind is Kind.FORALL:
            return
        pod, requirements = decided.frame.pod, decided.answer.requirements
        if self._backfills(decided.policy):
            self._pending.pop(pod.uid, None)
            if outcome.host is None:
                came = decided.answer.inputs.queued - _APART_SECONDS  # before those of the next steps
                self._pending[pod.uid] = msgspec.structs.replace(pod, created=came), decided.step
                return
            pod = msgspec.structs.replace(pod, started=now)  # the others are to know when it ends
        if outcome.host is None:
            return
        self._case_cluster.place(pod, outcome.host, order=outcome.device_order, devices=outcome.shared_devices or None)
        self._hosts[pod.uid] = outcome.host
        self._pods[pod.uid] = pod
        if requirements:
            self._members.wait(pod.uid, requirements, now)
            self._members.release(self._case_cluster.cluster.counters.group_size)
            self._settle_mates(decided, now)

    def _backfills(self, policy: TestedPolicy) -> bool:
        """Return whether pods must not delay others of the case, so that it matters who waits."""
        governing = policy.rules.policy if self._case.kind is Kind.SEQUENCE else None
        return governing is not None and governing.backfill is not None

    def _settle_mates(self, decided: Decided, now: float) -> None:
        """Place the members of a gang that waited, once it starts with a pod."""
        groups = [(each.group_of, each.group) for each in decided.answer.requirements]
        for uid, (mate, step) in list(self._pending.items()):
            if uid in self._pending and any(group_of(mate.template) == group for group_of, group in groups):
                self._settle(self._decided(step, mate, now, in_full=False), now)

    def _give_back(self, now: float) -> None:
        """Take the places from gangs whose time is up."""
        for uid in self._members.expire(now):
            self._remove(self._pods[uid])

    def _remove(self, pod: PodInfo) -> None:
        if self._case_cluster.cluster.node_of(pod.uid) is not None:
            self._case_cluster.take_off(pod, ends=True)
        self._members.leave(pod.uid)
        self._hosts.pop(pod.uid, None)
        self._pods.pop(pod.uid, None)

    def _finish(self, names: Part) -> None:
        there = {pod.name: pod for pod in self._case_cluster.cluster.pods.values()}
        for index, name in enumerate(names.value):
            if name not in there:
                advice = did_you_mean(name, tuple(there), none="no pod has a node")
                message = f"no pod `{name}` has a node"
                place = (*names.path, index)
                problem = self._context.document.error(place, codes.UNKNOWN_NODE, message=message, advice=advice)
                raise DocumentError([problem])
            self._remove(there[name])


_APART_SECONDS = 0.001
"""Of pods of a sequence that come at one moment, for orders by time."""


def planned_names(case: Case) -> Iterator[str]:
    """Yield what the pods of a case are called, in order."""
    taken: set[str] = set()
    for step in case.steps:
        if isinstance(step.pod, FixtureObject):
            yield step.pod.name
            continue
        if case.kind is Kind.ONE:
            yield str(step.pod.value.get("name", "pod"))
            continue
        for _ in range(step.count):
            number = 0
            name = step.base if step.count == 1 else f"{step.base}-0"
            while name in taken:
                number += 1
                name = f"{step.base}-{number}"
            taken.add(name)
            yield name
