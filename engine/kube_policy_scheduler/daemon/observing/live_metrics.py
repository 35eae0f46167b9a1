"""What is exported as it is at the moment of a scrape: lengths of queues, ages of metrics. Asks; keeps nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kube_policy_scheduler.adapters.kube.outbox import Backlog
from kube_policy_scheduler.adapters.loops import Loop
from kube_policy_scheduler.framework.queue import Place, SchedulingQueue
from kube_policy_scheduler.wording import one_line

_AT_ONCE = 200
"""Pending pods that are counted in one step."""
MAX_QUERY_LABEL = 120
"""Characters of a query in a label; the text comes from policy files, hence is bounded in number, not length."""


@dataclass(frozen=True, slots=True)
class SignalRow:
    """One query of the live policies at the time of a scrape."""

    query: str
    """A metric's name where the policy gives one, else its PromQL."""
    age_seconds: float | None
    """None where there is no reading yet."""
    degraded: bool
    """It fails, or is older than the policies allow."""
    series: int
    missing_nodes: int | None
    """Nodes without a value in the last decision that read it; None where none did."""
    fetch_seconds: float


@dataclass(frozen=True, slots=True)
class WatchRow:
    """One watched resource at the time of a scrape."""

    resource: str
    phase: str
    """What is being done about it, such as `watching`, `listing`."""
    late_seconds: float
    """For how long what is known of it has not been known to be all there is; 0.0 while it is."""
    silent_seconds: float | None
    """Since anything was last heard of it; None where nothing ever was."""
    restarts: int
    """How often its watch restarted."""


@dataclass(slots=True)
class LiveState:
    """What is asked for at a scrape; the daemon sets these once their owners exist. They must not block."""

    pending_pods: Callable[[], Mapping[str, int]] = dict
    """By queue: active, backoff, unschedulable, gated, and ours: held, waiting, binding."""
    cache_size: Callable[[], Mapping[str, int]] = dict
    """By type: nodes, pods, assumed_pods."""
    signals: Callable[[], Iterable[SignalRow]] = tuple
    unschedulable_pods: Callable[[], Mapping[tuple[str, str], int]] = dict
    """By (plugin, profile) that rejected them."""
    watches: Callable[[], Iterable[WatchRow]] = tuple
    backlogs: Callable[[], Mapping[str, Backlog]] = dict
    """What is still to be written to the API server in the background, by what it is."""
    oldest_pods: Callable[[], Mapping[str, float]] = dict
    """By state, in_flight or assumed: seconds for which the oldest pod has been in it."""
    loops: Callable[[], Iterable[Loop]] = tuple
    before_scrape: Callable[[], Iterator[None]] = lambda: iter(())
    """Steps to take before the others are asked: what takes long is counted there."""
    device_annotation_protected: Callable[[], bool | None] = lambda: None
    """Whether nobody but the scheduler can write which devices a pod has; None where nobody has looked."""
    decision_records: Callable[[], Mapping[str, int]] = dict
    """Records for the files of the decision log since the start: written, dropped; empty without files."""


class PendingCensus:
    """How many pods wait where, and why: counted some at a time before a scrape, which may be 100,000 of them."""

    def __init__(self, queue: SchedulingQueue) -> None:
        self._queue = queue
        self._places: Mapping[Place, int] | None = None
        self._rejections: Mapping[tuple[str, str], int] | None = None

    def steps(self) -> Iterator[None]:
        """Count for the scrape that follows; between two steps anything may happen."""
        places: Counter[Place] = Counter(dict.fromkeys(Place, 0))
        rejections: Counter[tuple[str, str]] = Counter()
        for at, queued in enumerate(list(self._queue)):
            if at % _AT_ONCE == _AT_ONCE - 1:
                yield
            places[queued.place] += 1
            if queued.place in (Place.UNSCHEDULABLE, Place.BACKOFF):
                rejections.update((plugin, queued.pod.scheduler_name) for plugin in queued.rejectors)
        self._places, self._rejections = places, rejections

    def places(self) -> dict[str, int]:
        """Return how many pods wait by place: as counted before this scrape, else as it is now."""
        counted, self._places = self._places, None
        return {place.value: number for place, number in (counted or self._queue.counts()).items()}

    def rejections(self) -> Mapping[tuple[str, str], int]:
        """Return how many pods wait that a plugin rejected, by plugin and profile; see `places`."""
        counted, self._rejections = self._rejections, None
        return self._queue.rejections() if counted is None else counted


class LiveMetrics(Collector):
    """Asks for what is only worth knowing when someone looks."""

    def __init__(self, live: LiveState) -> None:
        self._live = live

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry then does not call `collect` when it registers us."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the state of now."""
        pending = GaugeMetricFamily("scheduler_pending_pods", "Number of pending pods, by queue.", labels=["queue"])
        for queue, count in self._live.pending_pods().items():
            pending.add_metric([queue], count)
        yield pending

        cache = GaugeMetricFamily(
            "scheduler_cache_size", "Number of nodes, pods and assumed pods in the scheduler cache.", labels=["type"]
        )
        for kind, count in self._live.cache_size().items():
            cache.add_metric([kind], count)
        yield cache

        rejected = GaugeMetricFamily(
            "scheduler_unschedulable_pods",
            "Number of unschedulable pods, by the plugin that rejected them. A pod counts once for each such plugin.",
            labels=["plugin", "profile"],
        )
        for (plugin, profile), count in self._live.unschedulable_pods().items():
            rejected.add_metric([plugin, profile], count)
        yield rejected

        yield from _watch_metrics(self._live.watches())

        oldest = GaugeMetricFamily(
            "policy_scheduler_oldest_pod_seconds",
            "Seconds since the oldest pod is in flight (its binding or its preemption is under way) or assumed"
            " (bound, but not yet confirmed by the watch); 0 if there is none.",
            labels=["state"],
        )
        for state, seconds in self._live.oldest_pods().items():
            oldest.add_metric([state], seconds)
        yield oldest

        yield from _write_metrics(self._live.backlogs())
        yield from _loop_metrics(self._live.loops())

        protected = GaugeMetricFamily(
            "policy_scheduler_device_annotation_protected",
            "1 if only the scheduler can write the devices annotation of pods; otherwise 0, and the scheduler"
            " ignores the annotation.",
        )
        if (found := self._live.device_annotation_protected()) is not None:
            protected.add_metric([], float(found))
        yield protected

        records = CounterMetricFamily(
            "policy_scheduler_decision_log_records",
            "Number of records for the files of the decision log, by result.",
            labels=["result"],
        )
        for result, count in self._live.decision_records().items():
            records.add_metric([result], count)
        yield records

        yield from _signal_metrics(self._live.signals())


def _write_metrics(backlogs: Mapping[str, Backlog]) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "policy_scheduler_write_backlog",
        "Number of events and conditions that wait to be written to the API server.",
        labels=["kind"],
    )
    failing = GaugeMetricFamily(
        "policy_scheduler_write_failing",
        "Number of waiting events and conditions that failed at least once and are retried.",
        labels=["kind"],
    )
    oldest = GaugeMetricFamily(
        "policy_scheduler_write_oldest_seconds",
        "Seconds that the oldest event or condition has waited.",
        labels=["kind"],
    )
    results = CounterMetricFamily(
        "policy_scheduler_writes",
        "Number of events and conditions, by result: sent; merged with a newer one; retried; refused permanently;"
        " dropped because the queue was full; withheld because the replica no longer leads.",
        labels=["kind", "result"],
    )
    for kind, backlog in backlogs.items():
        waiting.add_metric([kind], backlog.items)
        failing.add_metric([kind], backlog.failing)
        oldest.add_metric([kind], backlog.oldest_seconds)
        for result, count in asdict(backlog.counts).items():
            results.add_metric([kind, result], count)
    yield from (waiting, failing, oldest, results)


def _loop_metrics(loops: Iterable[Loop]) -> Iterator[Metric]:
    up = GaugeMetricFamily("policy_scheduler_loop_up", "1 while a loop runs; 0 while it is broken.", labels=["loop"])
    breaks = CounterMetricFamily("policy_scheduler_loop_breaks", "Number of times that a loop broke.", labels=["loop"])
    idle = GaugeMetricFamily(
        "policy_scheduler_loop_idle_seconds",
        "Seconds since a loop last ran. A loop that waits for work can be idle for hours.",
        labels=["loop"],
    )
    for loop in loops:
        up.add_metric([loop.name], float(not loop.problem))
        breaks.add_metric([loop.name], loop.breaks)
        idle.add_metric([loop.name], loop.idle_seconds)
    yield from (up, breaks, idle)


def _watch_metrics(rows: Iterable[WatchRow]) -> Iterator[Metric]:
    restarts = CounterMetricFamily(
        "policy_scheduler_watch_restarts",
        "Number of restarted watches. This includes the routine restarts: the API server ends each watch after"
        " some minutes.",
        labels=["resource"],
    )
    phase = GaugeMetricFamily(
        "policy_scheduler_watch_phase",
        "1 for the current phase of the watch of a resource: starting, listing, connecting, catching up,"
        " watching, retrying, absent or forbidden.",
        labels=["resource", "phase"],
    )
    late = GaugeMetricFamily(
        "policy_scheduler_watch_late_seconds",
        "Seconds since the cached objects of a resource were last known to be current; 0 while they are current.",
        labels=["resource"],
    )
    silent = GaugeMetricFamily(
        "policy_scheduler_watch_silent_seconds",
        "Seconds since the API server last sent data about a resource. It normally sends some about once a minute.",
        labels=["resource"],
    )
    for row in rows:
        restarts.add_metric([row.resource], row.restarts)
        phase.add_metric([row.resource, row.phase], 1.0)
        late.add_metric([row.resource], row.late_seconds)
        if row.silent_seconds is not None:
            silent.add_metric([row.resource], row.silent_seconds)
    yield from (restarts, phase, late, silent)


def _signal_metrics(rows: Iterable[SignalRow]) -> Iterator[Metric]:
    def family(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"policy_scheduler_signal_{name}", text, labels=["query"])

    age = family("age_seconds", "Age of the last result of a query in seconds; absent before the first result.")
    degraded = family(
        "degraded", "1 if a query fails, matches no series, or its result is older than the policies allow."
    )
    series = family("series", "Number of series in the last result of a query.")
    missing = family("missing_nodes", "Number of nodes without a value in the last decision that read the query.")
    fetch = family("fetch_duration_seconds", "Duration of the last fetch of a query in seconds.")
    any_degraded = False
    for row in rows:
        labels = [query_label(row.query)]
        any_degraded |= row.degraded
        degraded.add_metric(labels, float(row.degraded))
        series.add_metric(labels, row.series)
        fetch.add_metric(labels, row.fetch_seconds)
        if row.age_seconds is not None:
            age.add_metric(labels, row.age_seconds)
        if row.missing_nodes is not None:
            missing.add_metric(labels, row.missing_nodes)
    yield from (age, degraded, series, missing, fetch)
    yield GaugeMetricFamily(
        "policy_scheduler_degraded",
        "1 if at least one query of the active policies is degraded.",
        value=float(any_degraded),
    )


def query_label(query: str) -> str:
    """Return a query as a label value: on one line, and cut where it is long."""
    return one_line(query, MAX_QUERY_LABEL)
