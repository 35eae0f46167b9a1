"""Probes, metrics and configuration over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectorError, ClientSession, web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kube_policy_scheduler.adapters.http.health_checks import HealthChecks
from kube_policy_scheduler.adapters.http.port import HttpPort, ServerError
from kube_policy_scheduler.adapters.http.server import HttpServer, Routes, Scrapes
from kube_policy_scheduler.adapters.process.spare_time import SpareTime


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with ClientSession() as made:
        yield made


def server(live: Mapping[str, Any] | None = None, ready: Mapping[str, Any] | None = None, **given: Any) -> HttpServer:
    return HttpServer(
        port=given.pop("port", HttpPort("127.0.0.1", 0)),
        checks=HealthChecks(live=live or {}, ready=ready or {}),
        scrapes=given.pop("scrapes", None) or Scrapes(CollectorRegistry()),
        **given,
    )


async def get(session: ClientSession, url: str) -> tuple[int, str]:
    async with session.get(url) as response:
        return response.status, await response.text()


async def test_probes_answer_as_kube_schedulers_do(session: ClientSession) -> None:
    reasons: dict[str, str | None] = {"policies": "no policies are in use: 2 errors", "sync": None}
    checks = {name: lambda name=name: reasons[name] for name in reasons}
    async with server(live={"ping": lambda: None}, ready=checks) as running:
        assert await get(session, f"{running.url}/livez") == (200, "ok")
        assert await get(session, f"{running.url}/readyz") == (
            500,
            "[-]policies failed: no policies are in use: 2 errors\n[+]sync ok\nreadyz check failed\n",
        )
        assert (await get(session, f"{running.url}/healthz"))[0] == 500
        assert (await get(session, f"{running.url}/readyz?exclude=policies"))[0] == 200
        assert await get(session, f"{running.url}/readyz/sync") == (200, "ok")
        assert await get(session, f"{running.url}/readyz/policies") == (500, "no policies are in use: 2 errors\n")
        assert await get(session, f"{running.url}/readyz/other") == (
            404,
            "unknown check other; the checks are: policies, sync\n",
        )
        reasons["policies"] = None
        assert await get(session, f"{running.url}/readyz") == (200, "ok")
        assert await get(session, f"{running.url}/readyz?verbose") == (
            200,
            "[+]policies ok\n[+]sync ok\nreadyz check passed\n",
        )
        assert await get(session, f"{running.url}/healthz") == (200, "ok")


async def test_a_check_that_breaks_is_a_failing_check(session: ClientSession, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str | None:
        raise RuntimeError("secret")

    async with server(live={"loop": broken}) as running:
        status, text = await get(session, f"{running.url}/livez")
    assert status == 500
    assert text == "[-]loop failed: the check itself failed: RuntimeError\nlivez check failed\n"
    assert "unexpected error" in caplog.text


async def test_metrics_are_served_in_the_format_that_the_scraper_asks_for(session: ClientSession) -> None:
    registry = CollectorRegistry()
    Gauge("answer", "It.", registry=registry).set(42)
    async with server(scrapes=Scrapes(registry)) as running:
        async with session.get(f"{running.url}/metrics") as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=")
            assert "answer 42.0" in await response.text()
        headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with session.get(f"{running.url}/metrics", headers=headers) as response:
            assert response.headers["Content-Type"].startswith("application/openmetrics-text")
            assert (await response.text()).endswith("# EOF\n")


@pytest.mark.long
@pytest.mark.parametrize("accepted", ["text/plain", "application/openmetrics-text; version=1.0.0"])
async def test_a_scrape_in_slices_is_the_same_text(session: ClientSession, accepted: str) -> None:
    registry = CollectorRegistry()
    many = Counter("many", "Of\nthem # all.", ("name",), registry=registry)
    spread = Histogram("spread_seconds", "Their spread.", ("kind",), unit="seconds", registry=registry)
    Gauge("none", "Has no sample.", ("name",), registry=registry)
    for number in range(250):
        many.labels(f"# {number}\n").inc()
        spread.labels(str(number)).observe(number)
    encode, content_type = choose_encoder(accepted)
    async with (
        server(scrapes=Scrapes(registry)) as running,
        session.get(f"{running.url}/metrics", headers={"Accept": accepted}) as response,
    ):
        assert response.headers["Content-Type"] == content_type
        lines = [line for line in (await response.read()).splitlines() if b"_created" not in line]
    assert lines == [line for line in encode(registry).splitlines() if b"_created" not in line]


@pytest.mark.parametrize("accepted", ["text/plain; version=.", "application/openmetrics-text; version=x", "\xff;;,"])
async def test_a_strange_scraper_gets_plain_text(session: ClientSession, accepted: str) -> None:
    async with (
        server() as running,
        session.get(f"{running.url}/metrics", headers={"Accept": accepted}) as response,
    ):
        assert response.status == 200
        assert response.headers["Content-Type"].startswith(("text/plain", "application/openmetrics-text"))


async def test_requests_for_metrics_during_a_scrape_share_the_next_one(session: ClientSession) -> None:
    collected, prepared = [], []

    class Collecting(Collector):
        def collect(self) -> Iterator[Metric]:
            collected.append(len(prepared))
            yield GaugeMetricFamily("prepared", "Steps.", value=len(prepared))

    def prepare() -> Iterator[None]:
        for _ in range(100):
            prepared.append(True)
            yield

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collecting())
    collected.clear()
    async with server(scrapes=Scrapes(registry, before=prepare, spare_time=SpareTime(slice_seconds=0.0))) as running:
        answers = await asyncio.gather(*(get(session, f"{running.url}/metrics") for _ in range(40)))
        assert {status for status, _ in answers} == {200}
        assert len(collected) < 10
        assert f"prepared {len(prepared) + 100}.0" in (await get(session, f"{running.url}/metrics"))[1], "a new one"


async def test_the_running_configuration_and_further_routes_are_shown(session: ClientSession) -> None:
    async def status(_: web.Request) -> web.StreamResponse:
        return web.Response(text="status")

    async with server(
        configuration=lambda: {"policies": Path("/etc/policies")}, routes=Routes({"/status": status})
    ) as running:
        assert await get(session, f"{running.url}/configz") == (200, '{\n  "policies": "/etc/policies"\n}\n')
        assert await get(session, f"{running.url}/status") == (200, "status")
        assert (await get(session, f"{running.url}/other"))[0] == 404


async def test_a_port_can_be_taken_before_it_is_served(session: ClientSession) -> None:
    async with HttpPort("127.0.0.1", 0) as port:
        with pytest.raises(ClientConnectorError):
            await get(session, f"http://{port.address}/livez")
        async with server(port=port) as running:
            assert running.url == f"http://{port.address}"
            assert await get(session, f"{running.url}/livez") == (200, "ok")


async def test_a_taken_port_is_one_clear_error() -> None:
    async with server() as running:
        port = int(running.url.rpartition(":")[2])
        second = HttpServer(
            port=HttpPort("127.0.0.1", port), checks=HealthChecks(), scrapes=Scrapes(CollectorRegistry())
        )
        with pytest.raises(ServerError) as raised:
            await second.__aenter__()
    assert str(raised.value).startswith(f"cannot listen at 127.0.0.1:{port}: ")
    assert "address already in use" in str(raised.value)
