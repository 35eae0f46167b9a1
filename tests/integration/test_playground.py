"""The playground on a live cluster: it only reads, says when the cluster cannot be reached, and finds it again."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import trustme

from kube_policy_scheduler.cli.commands.playground import ClusterSources, FileDoors
from kube_policy_scheduler.cli.given import Given
from kube_policy_scheduler.playground.server import Playground
from kube_policy_scheduler.playground.session import Session
from tests.fakes.prometheus_server import PrometheusServer, require_prometheus
from tests.integration.cluster import Cluster
from tests.integration.front import Front
from tests.integration.objects import node, pod
from tests.integration.permissions import used

READERS = "readers"
POLICY = {"a.policy": "filter node.ready and fits(cpu, mem)\nscore least_allocated()\n"}
READING = {"get", "list", "watch"}
TOKEN = "a-token-of-tests"


@pytest.fixture
def reader(cluster: Cluster, tmp_path: Path) -> Iterator[Front]:
    """The API server as an account sees it that may get, list and watch, and nothing else."""
    cluster.ensure("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": READERS}})
    meta = {"name": "playground-reader"}
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": sorted(READING)}]
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": READERS}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "subjects": [subject],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": meta["name"]},
    }
    cluster.ensure("clusterroles", role)
    cluster.ensure("clusterrolebindings", binding)
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca_file = tmp_path / "front-ca.crt"
    authority.cert_pem.write_to_path(ca_file)
    with Front(cluster.endpoint, tls=context, ca_file=ca_file) as front:
        yield front


@pytest_asyncio.fixture
async def playground(cluster: Cluster, reader: Front, tmp_path: Path) -> AsyncIterator[Playground]:
    cluster.add_nodes(node("n1", cpu="4"), node("n2", cpu="4"))
    cluster.add_pods(pod("web", cpu="1"))
    kubeconfig = reader.kubeconfig(tmp_path / "reader", user={"token": cluster.token(READERS, "reader")})
    sources = ClusterSources(Given(kubeconfig=kubeconfig), live=True)
    doors = FileDoors(tmp_path, {}, sources)
    # in another thread, for the command reads it before there is a loop
    opened, measure = await asyncio.to_thread(sources.opened)
    async with Playground(Session(POLICY, opened, measure=measure), doors=doors, token=TOKEN) as server:
        yield server


async def ask(server: Playground, path: str, **body: Any) -> tuple[int, Any]:
    url = f"{server.url.partition('/#')[0]}/api/{path}"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession() as client, client.post(url, json=body, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_it_only_reads(playground: Playground, reader: Front) -> None:
    asked = {"files": POLICY, "pod": {"key": "default/web"}}
    _, state = await ask(playground, "state")
    assert (state["cluster"]["source"], state["names"]) == ("live", ["n1", "n2"])
    for path, more in {
        "evaluate": {"id": 1},
        "lint": {},
        "why": {},
        "node": {"node": "n1"},
        "simulate": {"count": 2},
        "share": {},
        "command": {},
        "refresh": {},
        "open": {"live": True},
    }.items():
        status, answer = await ask(playground, path, **asked, **more)
        assert status == 200, (path, answer)
    assert {verb for _, _, verb in used(reader)} <= READING
    assert ("", "pods", "list") in used(reader)
    assert {exchange.verb for exchange in reader.exchanges} <= READING
    assert not [exchange for exchange in reader.exchanges if exchange.code in (401, 403)]


METRIC = {"a.policy": 'score 1 - (promql("busy") ?? 0)\n'}


async def test_metrics_come_from_prometheus_and_a_silent_one_is_named(tmp_path: Path) -> None:
    require_prometheus()
    prometheus = PrometheusServer(tmp_path)
    prometheus.backfill({"busy": [({"node": "a01"}, 0.5)]})
    prometheus.start()
    try:
        sources = ClusterSources(Given(prometheus_url=prometheus.url), live=False)
        asked = {"id": 1, "files": METRIC, "pod": {"key": "shop/web-next"}, "clause": 0}
        opened, measure = sources.opened()
        async with Playground(Session(METRIC, opened, measure=measure), token=TOKEN) as server:
            _, answer = await ask(server, "evaluate", **asked)
            assert answer["problems"] == []
            total = dict(zip(answer["verdict"]["names"], answer["verdict"]["total"], strict=True))
            assert total["a02"] - total["a01"] == pytest.approx(0.5)
    finally:
        prometheus.stop()
    opened, measure = sources.opened()
    async with Playground(Session(METRIC, opened, measure=measure), token=TOKEN) as server:
        status, answer = await ask(server, "evaluate", **asked)
        assert (status, answer["verdict"]["chosen"] is not None) == (200, True)
        (problem,) = answer["problems"]
        assert problem.startswith("busy: ")


async def test_a_cluster_that_goes_away_is_said_and_found_again(
    playground: Playground, reader: Front, cluster: Cluster
) -> None:
    reader.down()
    status, answer = await ask(playground, "refresh")
    assert status == 400
    assert answer["error"].startswith("cannot read the cluster: ")
    status, shown = await ask(playground, "evaluate", id=1, files=POLICY, pod={"key": "default/web"})
    assert (status, len(shown["verdict"]["total"])) == (200, 2)  # the page shows what it has
    reader.up()
    cluster.add_nodes(node("n3", cpu="4"))
    status, state = await ask(playground, "refresh")
    assert (status, state["names"]) == (200, ["n1", "n2", "n3"])
    assert 0 <= state["cluster"]["age"] < 60
