"""Readings kept fresh in the background, with a scripted client and with a real Prometheus."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import prometheus_client
import pytest

from kube_policy_scheduler.adapters.prometheus import signal_source
from kube_policy_scheduler.adapters.prometheus.queries import (
    PrometheusEndpoint,
    PrometheusUnreachableError,
    QueryRefusedError,
    QueryTimedOutError,
)
from kube_policy_scheduler.adapters.prometheus.signal_source import SignalSource
from kube_policy_scheduler.cluster.signal_join import SignalColumns
from kube_policy_scheduler.cluster.signals import About, Query, Reading, Series, Signals
from tests.fakes.prometheus_server import PrometheusServer
from tests.patience import PATIENCE_SECONDS

ENDPOINT = PrometheusEndpoint("http://127.0.0.1:1")


class Unforeseen(Exception):
    pass


@dataclass
class ScriptedClient:
    """Answers every query with its script's next step; the last step repeats. None is an answer without series."""

    script: dict[str, list[float | Exception | Callable[[], float] | list[float] | None]]
    asked: list[str] = field(default_factory=list)

    def fetch(self, query: Query) -> Reading:
        self.asked.append(query.promql)
        steps = self.script[query.promql]
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        if isinstance(step, Exception):
            raise step
        value = step() if callable(step) else step
        now = time.time()
        values = value if isinstance(value, list) else [] if value is None else [value]
        series = tuple(Series({"node": name}, one, now) for name, one in zip("abc", values, strict=False))
        return Reading(promql=query.promql, series=series, evaluated_at=now, fetched_at=now)

    def close(self) -> None:
        pass


class Published:
    """Collects snapshots and waits for one that is as wanted."""

    def __init__(self) -> None:
        self.all: list[Signals] = []
        self._more = asyncio.Event()

    def __call__(self, signals: Signals) -> None:
        self.all.append(signals)
        self._more.set()

    async def until(self, wanted: Callable[[Signals], bool], *, seconds: float = 20.0) -> Signals:
        async with asyncio.timeout(seconds):
            while not (self.all and wanted(self.all[-1])):
                self._more.clear()
                await self._more.wait()
        return self.all[-1]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_source, "FIRST_RETRY_SECONDS", 0.02)


def source_of(client: ScriptedClient, published: Published) -> SignalSource:
    return SignalSource(ENDPOINT, publish=published, connect=lambda _: client, chance=random.Random(1))


def value(signals: Signals, promql: str) -> float | None:
    reading = signals.readings.get(promql)
    return None if reading is None else reading.series[0].value


async def test_each_query_is_refreshed_at_its_own_interval() -> None:
    client, published = ScriptedClient({"fast": [1.0], "slow": [2.0]}), Published()
    async with source_of(client, published) as source:
        source.set_queries([Query("fast", every_seconds=0.01), Query("slow", every_seconds=60.0)])
        await published.until(lambda _: client.asked.count("fast") >= 5)
    assert client.asked.count("slow") == 1
    assert value(published.all[-1], "slow") == 2.0


async def test_the_same_query_is_sent_once_for_all_readers() -> None:
    client, published = ScriptedClient({"m": [1.0]}), Published()
    async with source_of(client, published) as source:
        source.set_queries([Query("m", by="node", stale_after_seconds=10.0), Query("m", stale_after_seconds=90.0)])
        await published.until(lambda signals: "m" in signals.readings)
    assert client.asked == ["m"]


async def test_a_reload_keeps_readings_of_unchanged_queries_and_drops_others() -> None:
    client, published = ScriptedClient({"old": [1.0], "both": [2.0], "new": [3.0]}), Published()
    async with source_of(client, published) as source:
        source.set_queries([Query("old"), Query("both")])
        await published.until(lambda signals: len(signals.readings) == 2)
        kept = source.signals.readings["both"]
        source.set_queries([Query("both"), Query("new")])
        assert source.signals.readings.keys() == {"both"}
        await published.until(lambda signals: "new" in signals.readings)
    assert source.signals.readings["both"] is kept
    assert client.asked.count("both") == 1


async def test_priming_gives_first_values_before_the_policies_change_and_asks_once() -> None:
    client, published = ScriptedClient({"live": [1.0], "next": [2.0]}), Published()
    async with source_of(client, published) as source:
        source.set_queries([Query("live")])
        signals = await source.prime([Query("live"), Query("next", every_seconds=0.01)], timeout_seconds=20)
        assert value(signals, "next") == 2.0
        await source.prime([Query("next", every_seconds=0.01)], timeout_seconds=20)
        assert client.asked.count("next") == 1, "not refreshed before it is used"
        source.set_queries([Query("next", every_seconds=0.01)])
        await published.until(lambda _: client.asked.count("next") >= 3)
        assert published.all[-1].readings.keys() == {"next"}


async def test_priming_waits_a_bounded_time_for_a_server_that_hangs() -> None:
    release = threading.Event()

    def hang() -> float:
        release.wait(PATIENCE_SECONDS)
        return 1.0

    async with source_of(ScriptedClient({"m": [hang]}), Published()) as source:
        started = time.monotonic()
        signals = await source.prime([Query("m")], timeout_seconds=0.05)
        assert time.monotonic() - started < 10
    release.set()
    assert signals.readings == {}


@pytest.mark.usefixtures("quick")
async def test_going_bad_and_recovering_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    down = PrometheusUnreachableError("cannot reach Prometheus")
    client, published = ScriptedClient({"m": [1.0, down, down, down, down, 2.0]}), Published()
    async with source_of(client, published) as source:
        source.set_queries([Query("m", every_seconds=0.01)])
        failed = await published.until(lambda s: "m" in s.failures and s.failures["m"].attempts == 4)
        assert value(failed, "m") == 1.0, "the last value stays while it fails"
        assert source.health()[0].degraded
        await published.until(lambda signals: value(signals, "m") == 2.0)
        assert not source.health()[0].degraded
    texts = [record.message for record in caplog.records if record.name == signal_source.__name__]
    assert texts[0] == "cannot reach Prometheus; using the last values until they are too old"
    assert texts[1].startswith("Prometheus answers again after")
    assert len(texts) == 2


@pytest.mark.usefixtures("quick")
async def test_a_wrong_query_does_not_affect_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = ScriptedClient({"good": [1.0], "wrong": [QueryRefusedError("Prometheus rejected the query: 1:1")]})
    published = Published()
    async with source_of(client, published) as source:
        source.set_queries([Query("good", every_seconds=0.01), Query("wrong", every_seconds=0.01)])
        signals = await published.until(
            lambda s: "wrong" in s.failures and s.failures["wrong"].attempts >= 3 and client.asked.count("good") > 3
        )
    failure = signals.failures["wrong"]
    assert failure.refused
    assert failure.text == "Prometheus rejected the query: 1:1"
    assert "good" not in signals.failures
    assert [record.message for record in caplog.records if "wrong" in record.message] == [
        "metric query fails: wrong: Prometheus rejected the query: 1:1"
    ]


async def test_it_ends_also_when_an_answer_comes_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[asyncio.Future[Reading]] = []
    asked = asyncio.Event()

    class Thread:
        def __init__(self, name: str) -> None:
            pass

        def call(self, function: Callable[[], Reading]) -> asyncio.Future[Reading]:
            answers.append(asyncio.get_running_loop().create_future())
            asked.set()
            return answers[-1]

        def stop(self, *, finally_call: Callable[[], object]) -> None:
            pass

    monkeypatch.setattr(signal_source, "WorkerThread", Thread)
    client = ScriptedClient({"m": [1.0]})
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with source_of(client, Published()) as source:
            source.set_queries([Query("m", every_seconds=0.01)])
            await asked.wait()
            answers[0].set_result(client.fetch(Query("m")))
    assert len(answers) == 1


async def test_an_unreachable_server_is_tried_once_per_round_not_once_per_query() -> None:
    down = PrometheusUnreachableError("down")
    names = [f"m{i}" for i in range(20)]
    client, published = ScriptedClient({name: [down] for name in names}), Published()
    async with source_of(client, published) as source:
        signals = await source.prime([Query(name) for name in names], timeout_seconds=20)
        assert len(signals.failures) == 20
        assert len(client.asked) == 1
        started = time.monotonic()
        late = await source.prime([Query("late")], timeout_seconds=20)
        assert late.failures.keys() == {*names, "late"}
        assert time.monotonic() - started < 10, "what is known to be in vain is not waited for"


async def test_a_server_that_hangs_costs_two_timeouts_per_round() -> None:
    slow = QueryTimedOutError("no answer")
    names = [f"m{i}" for i in range(20)]
    client = ScriptedClient({name: [slow] for name in names})
    async with source_of(client, Published()) as source:
        signals = await source.prime([Query(name) for name in names], timeout_seconds=20)
    assert len(signals.failures) == 20
    assert len(client.asked) == 2


@pytest.mark.usefixtures("quick")
async def test_a_call_that_never_ends_is_left_behind() -> None:
    release = threading.Event()

    def hang() -> float:
        release.wait(PATIENCE_SECONDS)
        return 99.0

    client, published = ScriptedClient({"m": [hang, 1.0]}), Published()
    source = SignalSource(
        PrometheusEndpoint("http://127.0.0.1:1", timeout_seconds=0.02), publish=published, connect=lambda _: client
    )
    async with source:
        source.set_queries([Query("m")])
        failed = await published.until(lambda signals: "m" in signals.failures)
        assert failed.failures["m"].text == "no complete answer from http://127.0.0.1:1 within 0.08 s"
        await published.until(lambda signals: value(signals, "m") == 1.0)
        release.set()
    assert value(source.signals, "m") == 1.0, "the late answer is not used"


@pytest.mark.usefixtures("quick")
async def test_an_unforeseen_fault_does_not_end_the_refreshing(caplog: pytest.LogCaptureFixture) -> None:
    client, published = ScriptedClient({"m": [Unforeseen("secret"), 1.0]}), Published()
    async with source_of(client, published) as source:
        source.set_queries([Query("m")])
        failed = await published.until(lambda signals: "m" in signals.failures)
        assert failed.failures["m"].text == "unexpected error: Unforeseen"
        await published.until(lambda signals: value(signals, "m") == 1.0)
    assert "unexpected error" in caplog.text


# --- a real Prometheus -------------------------------------------------------------------------------


@dataclass
class Nodes:
    names: list[str]
    hostnames: list[str | None]
    addresses: list[tuple[str, ...]]
    identity_version: int = 1

    def changes_since(self, version: int) -> None:
        """What changed is not known one by one."""


@pytest.mark.long
@pytest.mark.usefixtures("quick")
async def test_prometheus_killed_means_missing_after_the_declared_time_and_back_means_back(tmp_path: Path) -> None:
    server = PrometheusServer(tmp_path)
    server.backfill({"cpu_usage": [({"node": "a"}, 10.0)]})
    server.start()
    query = Query("sum by (node) (cpu_usage)", every_seconds=0.05, stale_after_seconds=1.0)
    nodes, columns, published = Nodes(["a"], [None], [()]), SignalColumns(), Published()

    def now_missing(signals: Signals) -> int:
        return columns.column(query, signals=signals, nodes=nodes, now=time.time()).missing

    try:
        async with SignalSource(PrometheusEndpoint(server.url), publish=published) as source:
            source.set_queries([query])
            await published.until(lambda signals: now_missing(signals) == 0 and not source.health()[0].degraded)

            server.stop()
            stopped = time.time()
            await published.until(lambda signals: now_missing(signals) == 1)
            assert time.time() - stopped >= 0.9, "the last value was used as long as it was young enough"
            (health,) = source.health()
            assert health.stale
            assert health.degraded
            assert health.failure is not None
            assert health.failure.text == f"cannot reach Prometheus at {server.url}: connection refused"
            assert health.last_success_at is not None

            server.start()
            await published.until(lambda signals: now_missing(signals) == 0 and not source.health()[0].degraded)
    finally:
        server.stop()


@pytest.fixture(scope="session")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus that scrapes two real exporters; the only wait of some seconds in the suite."""
    server = PrometheusServer(tmp_path_factory.mktemp("scraping"))
    exporters = []
    for load in (0.25, 0.75):
        registry = prometheus_client.CollectorRegistry()
        prometheus_client.Gauge("load", "share of the processor in use", registry=registry).set(load)
        exporters.append(prometheus_client.start_http_server(0, addr="127.0.0.1", registry=registry))
    targets = [f"127.0.0.1:{http.server_port}" for http, _ in exporters]
    server.scrape({targets[0]: {}, targets[1]: {"kubernetes_node": "node-b"}}, interval_seconds=0.5)
    server.start()
    yield server
    server.stop()
    for http, thread in exporters:
        http.shutdown()
        http.server_close()
        thread.join()


@pytest.mark.long
async def test_scraped_values_reach_nodes_by_address_and_by_label(scraped: PrometheusServer) -> None:
    nodes = Nodes(["node-a", "node-b"], [None, None], [("127.0.0.1",), ("127.0.0.2",)])
    columns, published = SignalColumns(), Published()
    query = Query("100 * load", every_seconds=0.2)
    async with SignalSource(PrometheusEndpoint(scraped.url), publish=published) as source:
        source.set_queries([query])
        signals = await published.until(
            lambda signals: columns.column(query, signals=signals, nodes=nodes, now=time.time()).missing == 0
        )
    found = columns.column(query, signals=signals, nodes=nodes, now=time.time())
    assert found.values.tolist() == [25.0, 75.0], "one by instance without its port, one by kubernetes_node"
    assert found.join is not None
    assert found.join.problems() == []


@pytest.mark.parametrize(
    ("query", "degraded"),
    [
        ("cpu_usage", True),
        ("avg by (node) (rate(node_cpu_seconds_total[5m]))", True),
        ("sum by (node) (a > bool 3)", True),
        ("a or b", True),
        ("node_problem == 1", False),
        ("sum by (node) (a > 3)", False),
        ("100 * (a unless b)", False),
        ('ALERTS{alertname="NodeHot"}', False),
        ("absent(up)", False),
    ],
)
async def test_a_query_that_matches_no_series_is_degraded_unless_it_asks_for_a_condition(
    query: str, degraded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    client, published = ScriptedClient({query: [None, 1.0]}), Published()
    with caplog.at_level(logging.INFO):
        async with source_of(client, published) as source:
            source.set_queries([Query(query, every_seconds=0.2)])
            await published.until(lambda signals: query in signals.readings)
            (before,) = source.health()
            await published.until(lambda signals: len(signals.readings[query].series) == 1)
            (after,) = source.health()
    assert (before.degraded, before.series) == (degraded, 0)
    assert (after.degraded, after.series) == (False, 1)
    told = [record.message for record in caplog.records if "series" in record.message]
    assert [message.partition(" series")[0] for message in told] == (
        ["metric query matches no", "metric query matches"] if degraded else []
    )


async def test_several_series_for_one_value_of_the_cluster_are_degraded_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client, published = ScriptedClient({"price": [[1.0, 2.0], [1.0, 2.0], 1.0]}), Published()
    with caplog.at_level(logging.INFO):
        async with source_of(client, published) as source:
            source.set_queries([Query("price", every_seconds=0.2, about=About.CLUSTER)])
            await published.until(lambda signals: "price" in signals.readings)
            (before,) = source.health()
            await published.until(lambda signals: len(signals.readings["price"].series) == 1)
            (after,) = source.health()
    assert (before.degraded, before.several, before.series) == (True, True, 2)
    assert (after.degraded, after.several, after.series) == (False, False, 1)
    told = [record.message.partition(":")[0] for record in caplog.records if "series" in record.message]
    assert told == [
        "metric query returns 2 series, but the metric has one value for the cluster, so its value is missing",
        "metric query returns one series again",
    ]
