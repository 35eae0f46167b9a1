"""One row for each decision that found a node: when, what, where, the inputs of the model, and the outcome.

The inputs are evaluated as the policy evaluates them, on the chosen node, before the pod counts there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.node_identities import NodeIdentities
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.returning_evictors import AGAIN
from kube_policy_scheduler.cluster.signal_join import SignalColumns
from kube_policy_scheduler.cluster.signals import Query, Reading, Signals
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.reserve.claims_in_memory import give_claims_back
from kube_policy_scheduler.kubernetes_rules import KubernetesRules
from kube_policy_scheduler.lang.compiling.expressions import Compiler
from kube_policy_scheduler.lang.environment import Pods
from kube_policy_scheduler.policy.decision_inputs import unbound
from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.dataset.model_inputs import FIRST_COLUMNS, LAST_COLUMNS, ModelInputs
from kube_policy_scheduler.tooling.dataset.table import Cell, TableWriter
from kube_policy_scheduler.tooling.decision_record import DecisionRecord, Outcome
from kube_policy_scheduler.tooling.simulation.metrics_over_time import MetricsOverTime, Playback
from kube_policy_scheduler.tooling.simulation.run import Stop, Stopwatch, run
from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant, Rules, Scenario
from kube_policy_scheduler.tooling.undoable_cluster import UndoableCluster
from kube_policy_scheduler.tooling.why.scores import value_at

Progress = Callable[[int, int], None]
"""Told how many decisions were looked at, and of how many."""


@dataclass(frozen=True, slots=True)
class LaterMetric:
    """An outcome: what a query says of the chosen node, or of the pod, some time after the decision."""

    name: str
    query: Query
    seconds: float
    """After the decision."""
    is_of_pod: bool = False
    """Whether its series name pods, by the labels `namespace` and `pod`; otherwise nodes."""


class _Later:
    """Reads one outcome; decisions come in order of time, so one playback that is ahead of them is enough."""

    def __init__(self, later: LaterMetric, metrics: MetricsOverTime) -> None:
        self._later = later
        self._playback = Playback(metrics.only([later.query]), [later.query])
        self._signals = Signals.EMPTY
        self._columns = SignalColumns()
        self._identities: NodeIdentities | None = None
        self._of_pods = _PodValues()

    def value(self, frame: Frame, row: int) -> float | None:
        """Return the value of a node or of the pod; None: it has none then, or none newer than the decision."""
        at = frame.now + self._later.seconds
        self._signals = self._playback.advance(at) or self._signals
        reading = self._signals.reading(self._later.query)
        if reading is None or reading.evaluated_at <= frame.now:
            return None
        if self._later.is_of_pod:
            stale = self._later.query.stale_after_seconds
            return _number(self._of_pods.value(reading, frame.pod, since=max(frame.now, at - stale)))
        self._identities = self._identities or NodeIdentities(frame.cluster.nodes)
        column = self._columns.column(self._later.query, signals=self._signals, nodes=self._identities, now=at)
        return _number(column.values[row])


class _PodValues:
    """The values of one reading by pod: the readings of a playback have all its samples, so all of this is bounded."""

    def __init__(self) -> None:
        self._reading: Reading | None = None
        self._values: dict[tuple[str, str], tuple[float, float] | None] = {}
        """By namespace and name: the value and its time; None where series disagree."""

    def value(self, reading: Reading, pod: PodInfo, *, since: float) -> float | None:
        """Return the value of a pod; None: it has none since that moment, or several different ones."""
        if reading is not self._reading:
            self._reading, self._values = reading, {}
            for series in reading.series:
                key = series.labels.get("namespace", ""), series.labels.get("pod", "")
                known = self._values.setdefault(key, (series.value, series.timestamp))
                if known is not None and known[0] != series.value:
                    self._values[key] = None
        found = self._values.get((pod.namespace, pod.name))
        return found[0] if found is not None and found[1] > since else None


class Dataset:
    """Makes rows of decisions, which are given in order of time."""

    def __init__(
        self,
        inputs: ModelInputs,
        variant: PolicyVariant,
        *,
        pods: Pods,
        table: TableWriter,
        most: int,
        later: Sequence[LaterMetric] = (),
    ) -> None:
        """Begin the table.

        Args:
            inputs: of the model.
            variant: the policies that name them, with their metrics and those of `later`.
            pods: of the environment that they were checked with.
            table: takes the rows.
            most: rows; what is decided after them is left out.
            later: outcomes.
        """
        compiler = Compiler(pods, inputs.policy.profile.devices)
        self._evaluate = [(compiler.compile(value), value.info) for value in inputs.values]
        self._callers = inputs.callers
        self._rules = Rules(variant, preempts=False)
        self._signals = variant.signals
        self._playback: Playback | None = None
        if variant.metrics is not None and variant.policy_set is not None:
            self._playback = Playback(variant.metrics, variant.policy_set.queries)
        self._later = [_Later(each, variant.metrics or MetricsOverTime(())) for each in later]
        self._table = table
        self._most = most
        self.rows = 0
        """How many there are."""
        self.without_node = 0
        """Decisions whose node the cluster does not have."""
        table.begin((*FIRST_COLUMNS, *inputs.names, *LAST_COLUMNS, *(each.name for each in later)))

    @property
    def is_full(self) -> bool:
        """Return whether it takes no more rows."""
        return self.rows >= self._most

    def add(self, frame: Frame, host: str, *, wait: float | None, runtime: float | None) -> None:
        """Make a row of a decision, if a policy that calls the model governs the pod.

        Args:
            frame: its inputs, before the pod counts on the node; metrics come from the dataset's own.
            host: the node.
            wait: seconds until the decision; None: not known.
            runtime: seconds that the pod runs; None: not known.
        """
        policy = self._rules.policy(frame.pod)
        if self.is_full or policy is None or policy.name not in self._callers:
            return
        row = frame.cluster.nodes.rows.get(host)
        if row is None:
            self.without_node += 1
            return
        if self._playback is not None:
            self._signals = self._playback.advance(frame.now) or self._signals
        at_node = msgspec.structs.replace(frame, rows=np.array([row]), signals=self._signals)
        cells: list[Cell] = [frame.now, f"{frame.pod.namespace}/{frame.pod.name}", host]
        cells += [_number(value_at(evaluate(at_node), 0, info)) for evaluate, info in self._evaluate]
        cells += [wait, runtime, *(each.value(frame, row) for each in self._later)]
        self._table.add(cells)
        self.rows += 1


def _number(value: Any) -> float | None:
    """Return what a model gets: what is too large for its numbers (float32) is missing to it."""
    if value is None:
        return None
    with np.errstate(over="ignore"):
        return float(value) if np.isfinite(np.float32(value)) else None


# --- simulated decisions ---------------------------------------------------------------------------------


def add_simulated(
    dataset: Dataset,
    scenario: Scenario,
    decider: PolicyVariant,
    *,
    seed: int,
    stopwatch: Stopwatch,
    progress: Progress,
    stop: Stop,
) -> None:
    """Simulate a scenario, and make rows of the decisions.

    Args:
        dataset: takes the rows.
        scenario: what happens.
        decider: who places the pods.
        seed: breaks ties.
        stopwatch: seconds.
        progress: called with how many pods have arrived.
        stop: asked whether to end it early.
    """
    lasts = {arrival.name: arrival.lasts for arrival in scenario.arrivals}

    def placing(frame: Frame, host: str) -> None:
        runtime = lasts.get(frame.pod.name.rstrip(AGAIN))
        dataset.add(frame, host, wait=frame.now - frame.queued, runtime=runtime)

    run(
        scenario,
        decider,
        seed=seed,
        stopwatch=stopwatch,
        progress=lambda done: progress(done, len(scenario.arrivals)),
        stop=lambda: dataset.is_full or stop(),
        placing=placing,
    )


# --- recorded decisions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a decision log says of where pods are."""

    placements: tuple[DecisionRecord, ...]
    """The decisions that gave pods their nodes, in order of time."""
    evictions: tuple[DecisionRecord, ...]
    """The decisions to evict pods, in order of time."""


_PASSED_OVER = frozenset((Outcome.FAILED,))


def recorded(records: Iterable[DecisionRecord]) -> Recorded:
    """Return the last decision about each pod, if it gave the pod a node, and all decisions to evict pods."""
    last: dict[str, DecisionRecord] = {}
    evictions: list[DecisionRecord] = []
    for record in records:
        if record.outcome not in _PASSED_OVER:
            last[record.pod.metadata.uid or record.key] = record
        if record.outcome is Outcome.PREEMPTING and record.victims:
            evictions.append(record)
    placements = sorted((each for each in last.values() if each.place), key=lambda each: each.time)
    return Recorded(tuple(placements), tuple(sorted(evictions, key=lambda each: each.time)))


def add_recorded(
    dataset: Dataset,
    things: Sequence[Any],
    log: Recorded,
    *,
    kubernetes: KubernetesRules,
    progress: Progress,
    stop: Stop,
) -> None:
    """Take the recorded pods out of a cluster, place them again as it was then, and make rows of that.

    Args:
        dataset: takes the rows.
        things: API objects of the cluster.
        log: the decisions.
        kubernetes: by whose rules.
        progress: called with the number of decisions done, and of all.
        stop: asked whether to end it early.
    """
    tried = UndoableCluster(cluster_state(things, kubernetes).cluster)
    pods = list(_pods(tried, log.placements))
    for pod in pods:
        _free(tried, pod)
    there = {f"{pod.namespace}/{pod.name}": pod.uid for pod in tried.cluster.pods.values()}
    evictions = deque(log.evictions)
    for done, (record, pod) in enumerate(zip(log.placements, pods, strict=True), 1):
        if dataset.is_full or stop():
            break
        while evictions and evictions[0].time <= record.time:
            _evict(tried, evictions.popleft(), there)
        tried.now = record.time
        queued = record.queued or pod.created
        frame = Frame(pod, tried.cluster, record.time, queued=queued, attempts=record.attempt - 1)
        wait = max(0.0, record.time - record.queued) if record.queued else None
        dataset.add(frame, record.place, wait=wait, runtime=None)
        if record.place in tried.cluster.nodes.rows:
            running = msgspec.structs.replace(pod, started=record.time, ready=True, all_started=True)
            tried.place(running, record.place)
            there[record.key] = pod.uid
        progress(done, len(log.placements))


def _evict(tried: UndoableCluster, record: DecisionRecord, there: dict[str, str]) -> None:
    """Take the victims of a decision off their nodes; there: uids of pods that have one, by `namespace/name`."""
    for key in record.victims:
        pod = tried.cluster.pods.get(there.pop(key, ""))
        if pod is not None:
            tried.take_off(pod, ends=True)


def _pods(tried: UndoableCluster, records: Iterable[DecisionRecord]) -> Iterator[PodInfo]:
    for record in records:
        pod, meta = record.pod, record.pod.metadata
        if not meta.uid:
            pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(meta, uid=record.key))
        yield tried.cluster.templates.pod(unbound(pod, keep_status=False))


def _free(tried: UndoableCluster, pod: PodInfo) -> None:
    """Take a pod out of the cluster, as it was before it came."""
    if tried.cluster.node_of(pod.uid) is not None:
        tried.take_off(pod)
    else:
        give_claims_back(tried.cluster, pod, ends=False)
    tried.nominate(pod, "")
