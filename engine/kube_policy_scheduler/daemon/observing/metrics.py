"""Everything that is exported to Prometheus: names, labels, buckets. Knows no scheduling.

`scheduler_*` and `rest_client_*` mean what they mean in kube-scheduler, so that its dashboards work;
`policy_scheduler_*` is ours. What the hot path counts is a cached child (0.3 µs instead of 1.2 µs through
`.labels()`); what can be asked for at any time (queue lengths, ages) is read when a scrape comes (`live_metrics`).
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Generic, TypeVar

from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics import Counter, Gauge, Histogram, MetricWrapperBase, disable_created_metrics
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.observing.live_metrics import label_value
from kube_policy_scheduler.daemon.observing.observers import (
    AttemptFailed,
    ClaimsBound,
    Decided,
    Observer,
    PodBound,
    PodMoved,
)
from kube_policy_scheduler.daemon.observing.quick_metrics import QuickCounter, QuickHistogram
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord, ReloadResult
from kube_policy_scheduler.policy.detail import Plugin
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.rebalancing.ledger import MoveOutcome

MetricT = TypeVar("MetricT", bound=MetricWrapperBase)


class Children(Generic[MetricT]):
    """The children of one metric by label values, looked up once each."""

    __slots__ = ("_children", "_metric")

    def __init__(self, metric: MetricT) -> None:
        self._metric = metric
        self._children: dict[tuple[str, ...], MetricT] = {}

    def of(self, *values: str) -> MetricT:
        """Return the child with these label values, in the order of the metric's labels."""
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self._metric.labels(*values)
        return child

    def keep(self, is_kept: Callable[[tuple[str, ...]], bool]) -> None:
        """Export those children no more whose label values are not kept."""
        for values in [values for values in self._children if not is_kept(values)]:
            del self._children[values]
            self._metric.remove(*values)


class _BuildInfo(Collector):
    """`policy_scheduler_build_info`: a start has no time to look for the version."""

    def __init__(self, version: Callable[[], str]) -> None:
        self._version = version

    def describe(self) -> Iterable[Metric]:
        """Return the metric without a value."""
        return [self._family()]

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        family = self._family()
        family.add_metric([self._version()], 1)
        yield family

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "policy_scheduler_build_info", "Version of the scheduler; always 1.", labels=["version"]
        )


class SchedulerMetrics(Observer):
    """All metrics of one daemon, in a registry of its own. Methods and `Children` may be called from any thread."""

    def __init__(self, *, version: Callable[[], str]) -> None:
        """version: returns that of the scheduler; called with the first scrape."""
        # a `_created` line per child would double the size of every scrape
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return QuickCounter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
            return QuickHistogram(name, text, labels, buckets=buckets, registry=registry)

        # --- as kube-scheduler's ---
        self.schedule_attempts = Children(
            counter(
                "scheduler_schedule_attempts", "Number of attempts to schedule pods, by result.", "result", "profile"
            )
        )
        self.attempt_seconds = Children(
            histogram(
                "scheduler_scheduling_attempt_duration_seconds",
                "Scheduling attempt latency in seconds: scheduling algorithm and binding.",
                "result",
                "profile",
                buckets=exponential(0.001, 2, 15),
            )
        )
        self.algorithm_seconds = histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds: filters, scores and preemption.",
            buckets=exponential(0.001, 2, 15),
        )
        self.pod_sli_seconds = Children(
            histogram(
                "scheduler_pod_scheduling_sli_duration_seconds",
                "Latency in seconds from the moment when a pod first enters the active queue until it is bound,"
                " over all attempts.",
                "attempts",
                buckets=exponential(0.01, 2, 20),
            )
        )
        self.pod_attempts = histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to schedule a pod successfully.",
            buckets=(1, 2, 4, 8, 16),
        )
        self.preemption_attempts = counter("scheduler_preemption_attempts", "Number of preemption attempts.")
        self.preemption_victims = histogram(
            "scheduler_preemption_victims", "Number of selected preemption victims.", buckets=exponential(1, 2, 7)
        )
        self.rest_client_requests = Children(
            counter(
                "rest_client_requests",
                "Number of HTTP requests to the API server, by status code, method and host.",
                "code",
                "method",
                "host",
            )
        )
        self.rest_client_seconds = Children(
            histogram(
                "rest_client_request_duration_seconds",
                "Latency of requests to the API server in seconds, by verb and host.",
                "verb",
                "host",
                buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
            )
        )

        # --- ours ---
        self.api_requests = Children(
            counter(
                "policy_scheduler_api_requests",
                "Number of requests to the API server, by verb, resource (with subresource) and status code.",
                "verb",
                "resource",
                "code",
            )
        )
        self.decisions = Children(
            counter("policy_scheduler_decisions", "Number of decisions, by policy and result.", "policy", "result")
        )
        self._violations = Children(
            counter(
                "policy_scheduler_invariant_violations",
                "Number of errors that a recount found in the cache, by kind. A value above 0 is a bug in the"
                " scheduler.",
                "kind",
            )
        )
        for kind in ("node", "pod", "queue", "binding"):
            self._violations.of(kind)
        self._long_turns = Children(
            counter(
                "policy_scheduler_long_turns",
                "Number of turns of the event loop that took more than 0.1 s of CPU, by what took longest: deciding (a"
                " pod), or other. Meanwhile no probe is answered and no lease renewed.",
                "step",
            )
        )
        for step in ("deciding", "other"):
            self._long_turns.of(step)
        self._reload_successful = gauge(
            "policy_scheduler_policy_last_reload_successful",
            "1 if the scheduler uses the newest policies; 0 if it could not load them. By owner, without one for the"
            " administrator's policies.",
            "owner",
        )
        self._reload_success_at = gauge(
            "policy_scheduler_policy_last_reload_success_timestamp_seconds",
            "Unix time of the last successful reload of policies; 0 before the first. By owner.",
            "owner",
        )
        self._reloads = Children(
            counter(
                "policy_scheduler_policy_reloads",
                "Number of policy sets that arrived, by result: accepted; refused (they contain errors);"
                " unreadable (a file, its name or the directory); failed (a bug in the scheduler); restored (the"
                " last accepted set, because the newest one cannot be used at the start). By owner.",
                "result",
                "owner",
            )
        )
        self._reload_seconds = histogram(
            "policy_scheduler_policy_reload_duration_seconds",
            "Seconds from the arrival of new policies until they are used or rejected.",
            buckets=exponential(0.01, 2, 12),
        )
        self._policy_info = gauge(
            "policy_scheduler_policy_info",
            "The active policies, by owner; always 1.",
            "hash",
            "generation",
            "owner",
        )
        self._info: dict[str, tuple[str, str, str]] = {}
        """The labels of `policy_info` by owner: there are as many as owners."""
        self._requests: dict[tuple[str, str, str, str], tuple[Counter, Counter, Histogram]] = {}
        """What counts a request, by verb, resource, code and host."""
        self._moves = Children(
            counter(
                "policy_scheduler_rebalance_moves",
                "Number of moves of pods, by outcome: planned (dry run), evicted, later (a PodDisruptionBudget allows"
                " no disruption now), never, failed; then landed (the replacement is on the node of the plan),"
                " elsewhere or pending.",
                "outcome",
            )
        )
        for outcome in MoveOutcome:
            self._moves.of(outcome.value)
        self._devices = DeviceMetrics(registry)
        self.shadow = ShadowMetrics(registry)
        self.extender = ExtenderMetrics(registry)
        self.estimator = EstimatorMetrics(registry)
        self.asked_extenders = AskedExtenderMetrics(registry)
        registry.register(_BuildInfo(version))
        for result in ReloadResult:
            self._reloads.of(result.value, "")  # a counter that is there before its first event can be alerted on
        self._reload_successful.labels("")
        self._reload_success_at.labels("")

    def use_policies(self, policies: PolicySet, *, served: Set[str]) -> None:
        """Export nothing more of policies and clauses that are gone: owners can name theirs otherwise at each change.

        served: names of schedulers whose pods are decided.
        """
        for by_profile in (self.schedule_attempts, self.attempt_seconds):
            by_profile.keep(lambda values: values[1] in served)
        names = {"", *(policy.name for policy in policies.policies)}
        clauses: set[tuple[str, ...]] = set()
        for policy in policies.policies:
            plugins: list[Plugin] = [*policy.profile.filters, *(weighted.plugin for weighted in policy.profile.scores)]
            clauses.update((policy.name, label_value(plugin.name)) for plugin in plugins)
        for by_policy in (self.decisions, self.shadow.pods, self.shadow.margin):
            by_policy.keep(lambda values: values[0] in names)
        for by_clause in (self.shadow.refusals, self.extender.refusals):
            by_clause.keep(clauses.__contains__)

    def on_decided(self, decided: Decided) -> None:
        """Time a decision; count an attempt that found no node: one that found one ends with its binding."""
        preemption = decided.decision.preemption
        if preemption is not None:
            self.preemption_attempts.inc()
            if preemption.victims:
                self.preemption_victims.observe(len(preemption.victims))
        self.algorithm_seconds.observe(decided.seconds)
        result = "unschedulable" if decided.decision.host is None else "placed"
        self.decisions.of(decided.policy or "", result).inc()
        if decided.decision.host is None:
            self._attempt("unschedulable", decided.decision.pod, decided.seconds)

    def on_bound(self, bound: PodBound) -> None:
        """Count a pod that got its node."""
        self._attempt("scheduled", bound.pod, bound.seconds)
        self.pod_attempts.observe(bound.attempts)
        attempts = str(bound.attempts) if bound.attempts < 15 else "15+"
        self.pod_sli_seconds.of(attempts).observe(max(0.0, bound.at - bound.queued))

    def on_moved(self, moved: PodMoved) -> None:
        """Count the outcome of a move."""
        self._moves.of(moved.outcome.value).inc()

    def on_claims_bound(self, bound: ClaimsBound) -> None:
        """Count what happened to the claims of a pod."""
        self._devices.on_claims_bound(bound)

    def on_failed(self, failed: AttemptFailed) -> None:
        """Count an attempt that broke."""
        self._attempt("error", failed.pod, failed.seconds)

    def _attempt(self, result: str, pod: PodInfo, seconds: float) -> None:
        self.schedule_attempts.of(result, pod.scheduler_name).inc()
        self.attempt_seconds.of(result, pod.scheduler_name).observe(seconds)

    def api_request(self, *, verb: str, resource: str, code: str, host: str, seconds: float) -> None:
        """Count one request to the API server.

        Args:
            verb: the HTTP method in lower case, or watch.
            resource: plural, with the subresource: `pods/binding`.
            code: HTTP status, or any other word where there was no answer.
            host: `host:port` of the API server.
            seconds: until the answer's end; for a watch until its headers.
        """
        kind = verb, resource, code, host
        counted = self._requests.get(kind)
        if counted is None:
            if not code.isdigit():
                code = "<error>"  # as client-go has it: alerts look for it
            counted = self._requests[kind] = (
                self.api_requests.of(verb, resource, code),
                self.rest_client_requests.of(code, "GET" if verb == "watch" else verb.upper(), host),
                self.rest_client_seconds.of(verb.upper(), host),
            )
        ours, client_go, took = counted
        ours.inc()
        client_go.inc()
        took.observe(seconds)

    def turn_was_long(self, step: str) -> None:
        """Count a turn of the event loop that was too long; step: what took longest in it."""
        self._long_turns.of(step or "other").inc()

    def violated(self, kind: str) -> None:
        """Count an invariant that did not hold."""
        self._violations.of(kind).inc()

    def on_reloaded(self, record: ReloadRecord) -> None:
        """Record the end of a policy reload."""
        owner = record.owner
        self._reloads.of(record.result.value, owner).inc()
        self._reload_seconds.observe(record.seconds)
        self._reload_successful.labels(owner).set(1 if record.successful else 0)
        if record.successful:
            self._reload_success_at.labels(owner).set(record.at)
        if record.successful or record.result is ReloadResult.RESTORED:
            if (before := self._info.pop(owner, None)) is not None:
                self._policy_info.remove(*before)
            labels = self._info[owner] = (record.hash or "", str(record.generation), owner)
            self._policy_info.labels(*labels).set(1)


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Return histogram bounds as kube-scheduler makes them: `count` of them, each `factor` times the last."""
    return tuple(first * factor**power for power in range(count))


MOST_DRIVERS = 200
"""Of devices with binding conditions that metrics name at most."""
MARGINS = (0.0, 0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Shares of the range between the best and the worst node."""
EXTENDER_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class DeviceMetrics:
    """What happens to ResourceClaims between the decision and the binding."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._creates = Counter(
            "scheduler_resourceclaim_creates",
            "Number of requests to create ResourceClaims for extended resources, by status.",
            ("status",),
            registry=registry,
        )
        self._creates_by_owner = Counter(
            "dynamic_resource_allocation_resourceclaim_creates",
            "The same under its name since Kubernetes 1.37, also by API group and kind of the owner of the claim.",
            ("status", "owner_api_group", "owner_api_kind"),
            registry=registry,
        )
        self._conditions = Children(
            Counter(
                "scheduler_dra_bindingconditions_allocations",
                "Number of allocations of devices with binding conditions, by profile, driver and status.",
                ("profile", "driver", "status"),
                registry=registry,
            )
        )
        self._wait_seconds = Children(
            Histogram(
                "scheduler_dra_bindingconditions_wait_duration_seconds",
                "Seconds that pods waited for the binding conditions of their devices, by profile, driver and status.",
                ("profile", "driver", "status"),
                buckets=exponential(0.1, 2, 14),
                registry=registry,
            )
        )
        self._claims_seconds = Histogram(
            "policy_scheduler_claims_binding_duration_seconds",
            "Seconds from the decision to the last write of the ResourceClaims of a pod, by result.",
            ("result",),
            buckets=exponential(0.001, 2, 18),
            registry=registry,
        )
        self._contended = Counter(
            "policy_scheduler_claims_contended",
            "Number of allocations that were taken back, because another scheduler had allocated the devices first.",
            registry=registry,
        )

        self._drivers: Counts[str] = Counts()
        """Allocations by driver."""

    def on_claims_bound(self, bound: ClaimsBound) -> None:
        """Count what happened to the claims of a pod."""
        if bound.created:
            self._creates.labels(bound.created).inc()
            self._creates_by_owner.labels(bound.created, "", "Pod").inc()
        for driver in bound.drivers if bound.conditions else ():
            labels = (bound.pod.scheduler_name, driver, bound.conditions)
            self._conditions.of(*labels).inc()
            self._wait_seconds.of(*labels).observe(bound.conditions_seconds)
            self._drivers[driver] += 1
        if len(self._drivers) > MOST_DRIVERS:
            self._forget_smallest()
        self._claims_seconds.labels("failure" if bound.why else "success").observe(bound.seconds)
        self._contended.inc(bound.contended)

    def _forget_smallest(self) -> None:
        """Keep only the drivers with the most allocations, because a ResourceSlice can name any driver."""
        self._drivers = Counts(dict(self._drivers.most_common(MOST_DRIVERS // 2)))
        for metric in (self._conditions, self._wait_seconds):
            metric.keep(lambda labels: labels[1] in self._drivers)


class ShadowMetrics:
    """What happened to the pods that another scheduler places, against what we decided."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pods = Children(
            Counter(
                "policy_scheduler_shadow_pods",
                "Number of pods that another scheduler placed or could not place, by policy and by verdict.",
                ("policy", "verdict"),
                registry=registry,
            )
        )
        self.refusals = Children(
            Counter(
                "policy_scheduler_shadow_refusals",
                "Number of pods whose node this clause rejects, or for which it rejects every node, by policy and"
                " clause.",
                ("policy", "clause"),
                registry=registry,
            )
        )
        self.margin = Children(
            Histogram(
                "policy_scheduler_shadow_margin",
                "Score difference between the chosen node of this scheduler and the node of the pod, as a share of"
                " the range from the best to the worst feasible node.",
                ("policy",),
                buckets=MARGINS,
                registry=registry,
            )
        )
        self.late = Counter(
            "policy_scheduler_shadow_late",
            "Number of pods that were bound before this scheduler had decided. They are compared with a decision"
            " on the cluster as it was just before.",
            registry=registry,
        )


class ExtenderMetrics:
    """What kube-scheduler asks of us."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "policy_scheduler_extender_requests",
            "Number of requests from kube-scheduler, by verb and result.",
            ("verb", "result"),
            registry=registry,
        )
        self.seconds = Histogram(
            "policy_scheduler_extender_request_duration_seconds",
            "Seconds from the last byte of a request to the first byte of its answer.",
            ("verb",),
            buckets=EXTENDER_SECONDS,
            registry=registry,
        )
        self.refusals = Children(
            Counter(
                "policy_scheduler_extender_refusals",
                "Number of pods for which a clause rejected at least one node of the request, by policy and clause.",
                ("policy", "clause"),
                registry=registry,
            )
        )


class EstimatorMetrics:
    """What Karmada's schedulers ask of us."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.answers = Counter(
            "policy_scheduler_estimator_answers",
            "Number of answers of the estimator: computed, kept (nothing has changed), last (the last good one,"
            " because a new one takes too long), counted (pods without a node), none (no opinion), error.",
            ("answer",),
            registry=registry,
        )
        self.computations = Counter(
            "policy_scheduler_estimator_computations",
            "Number of computations of the estimator, by what describes the pods (template: the workload in the"
            " cluster, request: the request alone) and whether all was tried (partial: at least so many fit).",
            ("source", "result"),
            registry=registry,
        )
        self.seconds = Histogram(
            "policy_scheduler_estimator_computation_seconds",
            "Seconds of a computation of the estimator.",
            buckets=EXTENDER_SECONDS,
            registry=registry,
        )


class AskedExtenderMetrics:
    """What we ask of HTTP extenders."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "policy_scheduler_asked_extender_duration_seconds",
            "Seconds of requests to HTTP extenders, by extender, verb and result (ok, timeout, error).",
            ("extender", "verb", "result"),
            buckets=EXTENDER_SECONDS,
            registry=registry,
        )

    def observe(self, extender: str, verb: str, result: str, seconds: float) -> None:
        """Count a request."""
        self._seconds.labels(extender, verb, result).observe(seconds)
