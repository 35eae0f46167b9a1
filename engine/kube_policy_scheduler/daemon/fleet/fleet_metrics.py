"""The metrics of the decision maker of a fleet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from prometheus_client.metrics import Counter, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from kube_policy_scheduler.daemon.fleet.engine import Maker
from kube_policy_scheduler.daemon.observing.live_metrics import label_value
from kube_policy_scheduler.daemon.observing.metrics import Children
from kube_policy_scheduler.fleet.model import NOTHING
from kube_policy_scheduler.times import Steady

PREFIX = "policy_scheduler_fleet_"
SECONDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)


class FleetState(msgspec.Struct, frozen=True):
    """What is asked for each scrape."""

    maker: Maker
    leading: bool
    writes_under_way: int
    now: Steady
    late_seconds: float = 0.0
    """For how long what is known may have been behind the control plane."""
    newest_policies_decide: bool | None = None
    """None: there is no folder of policies."""
    records: Mapping[str, int] = NOTHING
    """Of the decision log: how many were written to files, and how many were left out."""


class FleetMetrics:
    """Counts what happens, and reads from the decision maker what is."""

    def __init__(self, state: Callable[[], FleetState]) -> None:
        self.registry = CollectorRegistry()
        self.decision_seconds = Histogram(
            f"{PREFIX}decision_seconds",
            "Seconds that the decision about a binding took, without its writes.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self._requests = Counter(
            "policy_scheduler_api_requests",
            "Number of requests to the API server, by verb, resource and code.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self._compared = Children(
            Counter(
                f"{PREFIX}shadow_workloads",
                "Number of workloads that another scheduler decided, by policy and by verdict.",
                ["policy", "verdict"],
                registry=self.registry,
            )
        )
        self._rejections = Children(
            Counter(
                f"{PREFIX}shadow_rejections",
                "Number of workloads of which this filter or clause rejects a cluster that another scheduler chose, or"
                " for which it rejects clusters so that there is no place, by policy and clause.",
                ["policy", "clause"],
                registry=self.registry,
            )
        )
        self.registry.register(_Live(state))

    def compared(self, policy: str, verdict: str, clauses: Iterable[str]) -> None:
        """Count a decision of another scheduler. policy: "" if none decided; clauses: that reject its choice."""
        self._compared.of(policy, verdict).inc()
        for clause in clauses:
            self._rejections.of(policy, label_value(clause)).inc()

    def use_policies(self, names: Collection[str]) -> None:
        """Export what was compared by other policies no more: their names are those of files that come and go."""
        kept = {"", *names}
        for each in (self._compared, self._rejections):
            each.keep(lambda labels: labels[0] in kept)

    def api_request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(verb.lower(), resource, code).inc()


class _Live(Collector):
    def __init__(self, state: Callable[[], FleetState]) -> None:
        self._state = state

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        state = self._state()
        maker, tallies = state.maker, state.maker.tallies
        yield _gauge("leading", "1 if this replica decides, 0 if it stands by.", float(state.leading))
        yield _gauge("clusters", "Number of clusters that are known.", len(maker.fleet.clusters))
        yield _gauge(
            "bindings",
            "Number of bindings that ask for this scheduler, or of Workloads that wait for a cluster.",
            len(maker.waiting),
        )
        yield _gauge("unplaced_bindings", "Number of bindings whose last decision failed.", maker.waiting.failing)
        yield _gauge(
            "queued_bindings",
            "Number of bindings that wait for nothing but their turn to be decided.",
            maker.waiting.queued(),
        )
        yield _gauge(
            "longest_unplaced_seconds",
            "Seconds for which a workload has waited whose last decision failed; 0 if there is none.",
            maker.waiting.longest_failing(state.now),
        )
        clusters = maker.fleet.clusters
        yield _gauge("ready_clusters", "Number of clusters that are ready.", sum(each.ready for each in clusters))
        yield _gauge(
            "watch_late_seconds",
            "Seconds for which what is known may have been behind the control plane; 0 if it is current.",
            state.late_seconds,
        )
        policies = GaugeMetricFamily(
            f"{PREFIX}newest_policies_decide",
            "1 if the newest policies decide, 0 if they were rejected or could not be read.",
        )
        if state.newest_policies_decide is not None:
            policies.add_metric([], float(state.newest_policies_decide))
        yield policies
        records = CounterMetricFamily(
            f"{PREFIX}decision_log_records",
            "Number of records for the files of the decision log, by result: written, or dropped because the disk is"
            " too slow.",
            labels=["result"],
        )
        for result, count in sorted(state.records.items()):
            records.add_metric([result], count)
        yield records
        yield _gauge("writes_under_way", "Number of bindings that are being written.", state.writes_under_way)
        decisions = CounterMetricFamily(
            f"{PREFIX}decisions", "Number of decisions, by the reason of the condition.", labels=["reason"]
        )
        for reason, count in sorted(tallies.decisions.items()):
            decisions.add_metric([reason], count)
        yield decisions
        yield _counter("conflicts", "Number of writes refused because the binding had changed.", tallies.conflicts)
        yield _counter("failed_writes", "Number of writes that failed otherwise.", tallies.failed_writes)
        yield _counter(
            "unread_templates",
            "Number of workloads that were decided though the labels of their templates could not be read.",
            tallies.unread_templates,
        )
        estimates = CounterMetricFamily(
            f"{PREFIX}estimates",
            "Number of questions about the room of clusters, by answer: room (an estimator says it), none (no opinion),"
            " last (the last good answer, because there is no new one), member (counted from nodes and pods), failed.",
            labels=["answer"],
        )
        for answer, count in sorted(tallies.estimates.items()):
            estimates.add_metric([answer], count)
        yield estimates
        unread = GaugeMetricFamily(
            f"{PREFIX}member_unread",
            "1 if the nodes and pods of a cluster could not be read the last time, 0 if they could; only of clusters"
            " that are read.",
            labels=["cluster"],
        )
        ages = GaugeMetricFamily(
            f"{PREFIX}member_age_seconds",
            "Seconds since the nodes and pods of a cluster were read; only of clusters that are read.",
            labels=["cluster"],
        )
        for each in clusters:
            if (reading := tallies.members.get(each.name)) is not None:
                unread.add_metric([each.name], float(bool(reading.problem)))
                if reading.at is not None:
                    ages.add_metric([each.name], state.now - reading.at)
        yield unread
        yield ages


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)
