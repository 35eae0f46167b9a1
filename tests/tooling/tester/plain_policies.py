"""A policy set written in plain Python, so that the tester is tested without the language."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from kube_policy_scheduler.cluster.node_identities import NodeIdentities
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signal_join import SignalColumns
from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.framework.default_profile import kubernetes_filters
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Reads, Ready, Weighted
from kube_policy_scheduler.framework.plugins.base import Filter, Score
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod, QueuePosition, priority_position
from kube_policy_scheduler.framework.status import Code, Status
from kube_policy_scheduler.policy.decision_inputs import Rules
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.tooling.tester.outcome import Conjunct
from kube_policy_scheduler.tooling.tester.reports import case_lines, summary
from kube_policy_scheduler.tooling.tester.run import SuiteResult, SuiteRun
from kube_policy_scheduler.tooling.tester.suite_file import Fixtures, read_suite

CPU_USAGE = Query("cpu_usage")
SCHEDULER = "policy-scheduler"


class NodeReady(Filter):
    name = "node.ready"
    reads = Reads.ELSEWHERE
    code = Code.UNSCHEDULABLE
    reason = "node.ready is false"

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        ready: BoolArray = frame.cluster.nodes.ready[frame.rows]
        return ready


class OnlySmall(Filter):
    """Refuses pods as a whole."""

    name = "small"
    reads = Reads.ELSEWHERE

    def pre_filter(self, frame: Frame) -> Any:
        if frame.pod.template.requests.get("cpu", 0) > 8_000:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, ("no pod is larger than 8 cores",))
        return Ready()

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        return np.ones(frame.size, np.bool_)


class Cool(Score):
    """100 - cpu_usage; 50 where it is missing."""

    name = "cool"
    reads = Reads.ELSEWHERE

    def score(self, frame: Frame, state: Any) -> IntArray:
        nodes = NodeIdentities(frame.cluster.nodes)
        column = SignalColumns().column(CPU_USAGE, signals=frame.signals, nodes=nodes, now=frame.now)
        usage: FloatArray = np.where(np.isnan(column.values), 50.0, column.values)
        return (100 - usage[frame.rows]).astype(np.int64)


class PlainPolicy:
    """Holds pods with the label hold."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    @property
    def clause_names(self) -> frozenset[str]:
        return frozenset(plugin.name for plugin in self.profile.filters)

    @property
    def clauses(self) -> tuple[()]:
        return ()

    def position(self, queued: QueuedPod, frame: Frame) -> QueuePosition:
        return priority_position(queued)

    @property
    def rules(self) -> Rules:
        return Rules(self.profile, cast("Policy", HoldsByLabel()))

    def conjuncts(self, frame: Frame) -> Iterable[Conjunct]:
        return ()


class HoldsByLabel:
    """What is asked of the policy itself before a decision."""

    gangs = orders = ()
    backfill = None

    def holding(self, frame: Frame) -> Any:
        return SimpleNamespace(reason="until the label is gone") if "hold" in frame.pod.labels else None


class PlainPolicies:
    """One policy that governs the pods of one scheduler."""

    def __init__(self) -> None:
        self.warnings = ()
        self._profile = Profile("plain", (OnlySmall(), NodeReady(), *kubernetes_filters()), (Weighted(Cool()),))

    @property
    def queries(self) -> Iterable[Query]:
        return (CPU_USAGE,)

    def governing(self, pod: PodInfo) -> PlainPolicy | None:
        return PlainPolicy(self._profile) if pod.scheduler_name == SCHEDULER else None


def run_text(text: str, *, cluster: str = "") -> SuiteResult:
    """Run a test file given as text.

    Raises:
        DocumentError: it could not be run.
    """
    suite = read_suite(parse_document(Source("t.yaml", text)))
    recorded = parse_objects(Source("cluster.yaml", cluster)) if cluster else ()
    run = SuiteRun(suite, PlainPolicies(), Fixtures(tuple(recorded)), scheduler=SCHEDULER, shuffle=True)
    return run.result()


def shown(result: SuiteResult) -> str:
    lines = (line for case in result.cases for line in case_lines(case, result.suite, colour=False, width=100))
    return "\n".join([*lines, summary([result])])
