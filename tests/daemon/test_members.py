"""Room that is counted from what the API servers of members say: one that is broken says nothing about the others."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
import trustme

from kube_policy_scheduler.adapters.kube.errors import Forbidden, KubeError
from kube_policy_scheduler.adapters.kube.lists import Listing
from kube_policy_scheduler.adapters.kube.member_access import member_access
from kube_policy_scheduler.adapters.kube.member_lists import MemberListing, ReadingLimits, read_member
from kube_policy_scheduler.daemon.fleet import members
from kube_policy_scheduler.daemon.fleet.estimators import Estimators
from kube_policy_scheduler.daemon.fleet.members import (
    LAST_GOOD_SECONDS,
    MOST_MEMBERS,
    READ_AT_ONCE,
    REFRESH_SECONDS,
    MemberClusters,
    MemberReader,
)
from kube_policy_scheduler.daemon.modes.estimated_pods import PodTemplates
from kube_policy_scheduler.embedded import EmbeddedCluster
from kube_policy_scheduler.fleet.karmada.estimates import Demand, Part, ReplicasQuestion, SetsQuestion
from kube_policy_scheduler.fleet.model import ToldMember
from kube_policy_scheduler.fleet.tallies import MemberReading, Tallies
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer
from tests.adapters.kube.test_proxy import proxied
from tests.daemon.test_estimator import ANTI_AFFINITY, HOSTNAME, ONE_CORE, WEB, FakeApi
from tests.daemon.test_estimators import Servers
from tests.embedded.cases import client_of
from tests.embedded.rest import Client
from tests.fleet.fleets import policies
from tests.fleet.karmada.bindings import binding
from tests.integration.api import Endpoint
from tests.integration.control_plane import ControlPlane, assets
from tests.tooling.worlds import things_of

ASKED = ReplicasQuestion("member1", "shop", ONE_CORE)
NOON = 1_767_268_800.0


def raw_node(name: str, **amounts: str) -> dict[str, Any]:
    offered = {"cpu": "10", "memory": "64Gi", "pods": "110", **amounts}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name}},
        "status": {"capacity": offered, "allocatable": offered},
    }


def listing(nodes: int) -> MemberListing:
    made = things_of([{"name": f"n{number}", "cpu": 10, "mem": "64Gi"} for number in range(nodes)], [])
    return MemberListing(Listing(list(made)), 1)


class Fleet:
    """MemberClusters, each with as many nodes of ten cores, a problem, or no answer."""

    def __init__(self, *, counts: bool = True, **there: int | Exception | None) -> None:
        self.there, self.now = there, 100.0
        self.read: list[str] = []
        self.noted: dict[str, MemberReading | None] = {}
        self.told: dict[str, ToldMember | None] = {}
        self.api = FakeApi()
        self.members = MemberClusters(
            self._read,
            PodTemplates(cast(Any, self.api)),
            note=self.noted.__setitem__,
            tell=self.told.__setitem__,
            counts=counts,
            clock=lambda: NOON,
            steady=lambda: self.now,
        )

    async def _read(self, cluster: str) -> MemberListing:
        self.read.append(cluster)
        found = self.there[cluster]
        if found is None:
            await asyncio.Event().wait()
        if isinstance(found, Exception):
            raise found
        assert found is not None
        return listing(found)

    async def ask(self, cluster: str = "a", *, seconds: float = 30.0) -> int | None:
        return await self.members.ask(about(cluster), seconds=seconds)

    async def looked(self, *names: str) -> None:
        """Look at members, and wait for the readings that this begins."""
        self.members.look(names)
        await asyncio.sleep(0)
        await self.refreshed()

    def values(self) -> dict[str, float | str | None]:
        """Return the value that policies have now, or the reason why it is missing."""
        return {
            name: None if each is None else each.problem or next(iter(each.values.values()), None)
            for name, each in self.told.items()
        }

    async def refreshed(self) -> None:
        """Wait for the readings that are under way."""
        names = {"read-member"}
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() in names))


def about(cluster: str) -> ReplicasQuestion:
    return ReplicasQuestion(cluster, "shop", ONE_CORE)


# --- when a member is read, and what counts meanwhile ------------------------------------------------------


async def test_a_member_is_read_once_in_a_minute() -> None:
    fleet = Fleet(a=2)
    assert [await fleet.ask() for _ in range(3)] == [20, 20, 20]
    assert fleet.read == ["a"]
    fleet.there["a"] = 3
    fleet.now += REFRESH_SECONDS
    assert await fleet.ask() == 20  # nobody waits for a newer one
    await fleet.refreshed()
    assert (await fleet.ask(), fleet.read) == (30, ["a", "a"])


async def test_what_was_read_last_counts_for_three_minutes() -> None:
    fleet = Fleet(a=2)
    assert await fleet.ask() == 20
    fleet.there["a"] = Forbidden("no", status=403)
    fleet.now += LAST_GOOD_SECONDS - 1
    assert await fleet.ask() == 20
    await fleet.refreshed()
    assert fleet.noted["a"] == MemberReading(cast(Any, 100.0), "403 error: no")
    fleet.now += 1
    assert await fleet.ask() is None


async def test_one_that_cannot_be_read_rests_longer_each_time(caplog: pytest.LogCaptureFixture) -> None:
    fleet = Fleet(a=KubeError("broken"), b=1)
    pauses = []
    for tries in range(1, 7):
        while len(fleet.read) < tries:
            assert await fleet.ask() is None
            fleet.now += 10
        pauses.append(fleet.now)
    assert [after - before for before, after in pairwise(pauses)] == [60, 120, 240, 480, 600]
    assert await fleet.ask("b") == 10
    warned = [record for record in caplog.records if record.message == "Unable to read member cluster"]
    assert [(record.__dict__["cluster"], record.__dict__["why"]) for record in warned] == [("a", "broken")]
    fleet.there["a"] = 1
    fleet.now += 600
    assert await fleet.ask() == 10
    assert fleet.noted["a"] == MemberReading(cast(Any, fleet.now))


async def test_a_fault_of_ours_is_of_one_member_only() -> None:
    fleet = Fleet(a=IndexError("x"), b=1)
    assert (await fleet.ask("a"), await fleet.ask("b")) == (None, 10)
    told = fleet.noted["a"]
    assert told is not None
    assert told.problem == "unexpected error: IndexError"


async def test_those_that_hang_do_not_hold_up_the_decision_or_others() -> None:
    hanging: dict[str, int | Exception | None] = {f"h{number}": None for number in range(READ_AT_ONCE - 1)}
    fleet = Fleet(**hanging, a=1)
    assert [await fleet.ask(name, seconds=0.01) for name in hanging] == [None] * len(hanging)
    assert await fleet.ask("a") == 10


async def test_one_that_is_dropped_while_it_is_read_answers_and_is_forgotten() -> None:
    fleet = Fleet(a=1)
    fleet.there |= dict.fromkeys((f"c{number}" for number in range(MOST_MEMBERS)), KubeError("no"))
    async with asyncio.TaskGroup() as group:
        first = group.create_task(fleet.ask("a"))
        for name in list(fleet.there)[1:]:
            group.create_task(fleet.ask(name))
    assert first.result() == 10
    assert fleet.noted["a"] is None


async def test_there_are_no_more_members_than_so_many() -> None:
    fleet = Fleet()
    fleet.there = dict.fromkeys((f"c{number}" for number in range(MOST_MEMBERS + 1)), KubeError("no"))
    for name in fleet.there:
        await fleet.ask(name)
    assert fleet.noted["c0"] is None


async def test_readings_that_nobody_asks_about_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MOST_KEPT_BYTES", 2)
    fleet = Fleet(a=1, b=1, c=1)
    for name in "abc":
        assert await fleet.ask(name) == 10
        fleet.now += 1
    assert await fleet.ask("a", seconds=0.0) is None
    assert (await fleet.ask("b"), await fleet.ask("c")) == (10, 10)


# --- what policies ask -----------------------------------------------------------------------------------


NODES, CORES = (
    policies(f"score {text} ?? 0").member_values
    for text in ("count(n in cluster.nodes)", "sum(n.free.cpu for n in cluster.nodes)")
)


async def test_nothing_is_read_before_policies_ask_and_nothing_after() -> None:
    fleet = Fleet(counts=False, a=2)
    await fleet.looked("a")
    assert fleet.read == []
    fleet.members.use(NODES)
    await fleet.looked("a")
    assert (fleet.read, fleet.values()) == (["a"], {"a": 2})
    fleet.members.use(())
    fleet.now += REFRESH_SECONDS
    await fleet.looked("a")
    assert (fleet.read, fleet.values(), fleet.noted) == (["a"], {"a": None}, {"a": None})


async def test_members_are_read_again_each_minute_and_told_of() -> None:
    fleet = Fleet(counts=False, a=2, b=KubeError("broken"))
    fleet.members.use(CORES)
    await fleet.looked("a", "b")
    assert fleet.values() == {"a": 20, "b": "broken"}
    fleet.there["a"] = 3
    fleet.now += REFRESH_SECONDS - 1
    await fleet.looked("a", "b")
    assert fleet.values() == {"a": 20, "b": "broken"}
    fleet.now += 1
    await fleet.looked("a", "b")
    assert (fleet.values(), fleet.read) == ({"a": 30, "b": "broken"}, ["a", "b"] * 2)


async def test_a_value_counts_while_its_member_cannot_be_read_and_then_is_missing() -> None:
    fleet = Fleet(counts=False, a=2)
    fleet.members.use(NODES)
    await fleet.looked("a")
    fleet.there["a"] = KubeError("broken")
    fleet.now += LAST_GOOD_SECONDS - 1
    await fleet.looked("a")
    assert fleet.values() == {"a": 2}
    fleet.now += 1
    await fleet.looked("a")
    assert fleet.values() == {"a": "they were last read 3 min ago: broken"}
    told = fleet.told["a"]
    assert told is not None
    assert told.at == NOON
    fleet.there["a"] = 4
    fleet.now += 600
    await fleet.looked("a")
    assert fleet.values() == {"a": 4}


async def test_members_that_are_gone_are_forgotten() -> None:
    fleet = Fleet(counts=False, a=2, b=1)
    fleet.members.use(NODES)
    await fleet.looked("a", "b")
    await fleet.looked("b")
    assert (fleet.values(), fleet.noted["a"]) == ({"a": None, "b": 1}, None)


async def test_other_policies_are_told_what_they_ask_at_the_next_look() -> None:
    fleet = Fleet(counts=False, a=2, b=KubeError("broken"))
    fleet.members.use(NODES)
    await fleet.looked("a", "b")
    fleet.members.use(NODES)
    await fleet.looked("a", "b")
    assert fleet.read == ["a", "b"]
    fleet.members.use(CORES)
    await fleet.members.wait("ab", seconds=30.0)
    assert fleet.values() == {"a": 20, "b": "broken"}
    told = [each.answers(CORES) for each in fleet.told.values() if each is not None]
    assert (told, fleet.read) == ([True, True], ["a", "b", "a"])


async def test_who_waits_gets_the_first_reading_and_waits_for_none_that_hangs() -> None:
    fleet = Fleet(counts=False, a=2, b=None)
    fleet.members.use(NODES)
    await fleet.members.wait("a", seconds=30.0)
    assert fleet.values() == {"a": 2}
    await fleet.members.wait("b", seconds=0.01)
    assert fleet.values() == {"a": 2}


async def test_policies_and_room_share_a_reading() -> None:
    fleet = Fleet(a=2)
    assert await fleet.ask() == 20
    fleet.members.use(NODES)
    await fleet.looked("a")
    fleet.now += 1
    assert (await fleet.ask(), fleet.read, fleet.values()) == (20, ["a", "a"], {"a": 2})


async def test_nothing_is_kept_but_values_where_no_room_is_counted() -> None:
    fleet = Fleet(counts=False, a=2)
    fleet.members.use(NODES)
    await fleet.looked("a")
    assert await fleet.ask(seconds=0.0) is None
    assert fleet.values() == {"a": 2}


async def test_large_fleets_are_read_less_often_and_count_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MOST_BYTES_PER_SECOND", 0.01)  # each member of these has one byte
    fleet = Fleet(counts=False, a=2, b=2)
    fleet.members.use(NODES)
    await fleet.looked("a", "b")
    fleet.there["b"] = KubeError("broken")
    for _ in range(2):
        fleet.now += 100
        await fleet.looked("a", "b")
    assert fleet.read == ["a", "b", "a", "b"], "a was read when only its own byte was known"
    fleet.now += 399
    await fleet.looked("a", "b")
    assert fleet.values()["b"] == 2


# --- what is counted ---------------------------------------------------------------------------------------


async def test_the_template_of_the_control_plane_says_what_the_question_does_not() -> None:
    fleet = Fleet(a=2)
    fleet.api.add({"app": "web"})
    asked = ReplicasQuestion("a", "shop", ONE_CORE, template=WEB)
    assert await fleet.members.ask(asked, seconds=30.0) == 20
    fleet.api.add({"app": "web"}, affinity=ANTI_AFFINITY)
    fleet.now += REFRESH_SECONDS
    await fleet.ask()
    await fleet.refreshed()
    assert await fleet.members.ask(asked, seconds=30.0) == 2


async def test_a_template_is_read_once_for_all_members() -> None:
    fleet = Fleet(a=2, b=1)
    fleet.api.add({"app": "web"})
    asked = [ReplicasQuestion(name, "shop", ONE_CORE, template=WEB) for name in ("a", "b")]
    assert await asyncio.gather(*(fleet.members.ask(one, seconds=30.0) for one in asked)) == [20, 10]
    assert len(fleet.api.asked) == 1


async def test_sets_are_counted_and_wrong_questions_answered_with_nothing() -> None:
    fleet = Fleet(a=2)
    asked = SetsQuestion("a", "shop", (Part(Demand({"cpu": "6"}), 1), Part(Demand({"cpu": "2"}), 2)))
    assert await fleet.members.ask(asked, seconds=30.0) == 2
    wrong = ReplicasQuestion("a", "shop", Demand({"cpu": "many"}))
    assert await fleet.members.ask(wrong, seconds=30.0) is None
    assert await fleet.ask() == 20


async def test_members_are_asked_where_estimators_give_no_answer() -> None:
    fleet = Fleet(a=2, b=1, c=1, d=KubeError("no"))
    servers = Servers(a=7, b=-1)
    tallies = Tallies()
    asked = Estimators(servers.estimators._connect, timeout=30.0, members=fleet.members, count=tallies.estimated)
    one_core = binding(replicaRequirements={"resourceRequest": {"cpu": "1"}})
    assert await asked.ask(one_core, list("abcd")) == {"a": {"capacity": 7}, "b": {"member": 10}, "c": {"member": 10}}
    assert tallies.estimates == {"room": 1, "member": 2, "failed": 1}
    alone = Estimators(None, timeout=30.0, members=fleet.members)
    assert await alone.ask(one_core, ["a", "d"]) == {"a": {"member": 20}}


# --- over the network --------------------------------------------------------------------------------------


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Karmada(FakeApi):
    """A control plane with one member."""

    def __init__(self, server: str, *, authority: str = "", token: str = "t0ken", **spec: Any) -> None:
        super().__init__()
        reference = {"namespace": "karmada-cluster", "name": "member1"}
        self.spec = {"apiEndpoint": server, "secretRef": reference, **spec}
        self.data = {"token": encoded(token), "caBundle": encoded(authority)}
        self.objects = {
            "/apis/cluster.karmada.io/v1alpha1/clusters/member1": {"spec": self.spec},
            "/api/v1/namespaces/karmada-cluster/secrets/member1": {"data": self.data},
        }

    def members(self) -> tuple[MemberClusters, dict[str, MemberReading | None]]:
        noted: dict[str, MemberReading | None] = {}
        reader = MemberReader(cast(Any, self))
        return MemberClusters(reader.read, PodTemplates(cast(Any, self)), note=noted.__setitem__), noted


def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def pem_of(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


@asynccontextmanager
async def member(*objects: dict[str, Any]) -> AsyncIterator[tuple[EmbeddedCluster, trustme.CA]]:
    authority = trustme.CA()
    async with EmbeddedCluster(kubelets=None, controllers=None, ssl_context=server_tls(authority)) as cluster:
        cluster.load([raw_node("a"), raw_node("b"), *objects])
        yield cluster, authority


async def test_a_cluster_is_read_by_what_karmada_has_of_it() -> None:
    running = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "nodeName": "a",
            "containers": [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "3"}}}],
        },
        "status": {"phase": "Running"},
    }
    async with member(running) as (cluster, authority):
        karmada = Karmada(cluster.url, authority=pem_of(authority))
        karmada.add({"app": "web"}, affinity=ANTI_AFFINITY)
        asking, noted = karmada.members()
        assert await asking.ask(ASKED, seconds=60.0) == 17
        apart = ReplicasQuestion("member1", "default", ONE_CORE, template=WEB)
        assert await asking.ask(apart, seconds=60.0) == 1  # sums say 17: the pod that runs keeps the first node
        told = noted["member1"]
        assert told is not None
        assert (told.problem, told.remark) == ("", "")


async def test_a_certificate_that_is_not_to_be_verified_is_remarked() -> None:
    async with member() as (cluster, _):
        asking, noted = Karmada(cluster.url, insecureSkipTLSVerification=True).members()
        assert await asking.ask(ASKED, seconds=60.0) == 20
        told = noted["member1"]
        assert told is not None
        assert told.remark == "the certificate of its API server is not verified, as its Cluster says"


@pytest.mark.parametrize("authority", ["", "other"])
async def test_a_server_that_another_authority_vouches_for_is_not_told_the_token(authority: str) -> None:
    async with ScriptedServer(tls=server_tls(trustme.CA())) as server:
        given = pem_of(trustme.CA()) if authority else ""
        asking, noted = Karmada(f"https://127.0.0.1:{server.port}", authority=given).members()
        assert await asking.ask(ASKED, seconds=60.0) is None
        told = noted["member1"]
        assert told is not None
        assert "its certificate is not trusted" in told.problem
        assert server.requests == []


async def test_a_cluster_behind_a_proxy_is_read_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")  # which does not apply to the proxies of Clusters
    async with member() as (cluster, authority), proxied() as tunnels:
        karmada = Karmada(
            cluster.url,
            authority=pem_of(authority),
            proxyURL=f"http://ann:p%40ss@127.0.0.1:{tunnels.port}",
            proxyHeader={"X-Cluster": "member1,member2", "Proxy-Authorization": "Basic less-than-that-of-the-URL"},
        )
        asking, noted = karmada.members()
        assert await asking.ask(ASKED, seconds=60.0) == 20, noted
        assert tunnels.heads
        for head in tunnels.heads:
            assert head.startswith(f"CONNECT 127.0.0.1:{urlsplit(cluster.url).port} HTTP/1.")
            assert "X-Cluster: member1\r\nX-Cluster: member2\r\n" in head
            assert [line for line in head.splitlines() if line.startswith("Proxy-Auth")] == [
                "Proxy-Authorization: Basic YW5uOnBAc3M="
            ]
            assert "t0ken" not in head


async def test_a_proxy_that_speaks_tls_is_verified_by_the_authorities_of_the_system() -> None:
    async with member() as (cluster, authority), proxied(tls=server_tls(authority)) as tunnels:
        proxy = f"https://127.0.0.1:{tunnels.port}"
        asking, noted = Karmada(cluster.url, authority=pem_of(authority), proxyURL=proxy).members()
        assert await asking.ask(ASKED, seconds=60.0) is None
        told = noted["member1"]
        assert told is not None
        assert "certificate" in told.problem
        assert tunnels.heads == []


async def test_a_proxy_that_refuses_is_named_without_its_password() -> None:
    async with proxied(refusal=b"HTTP/1.1 403 Forbidden\r\n\r\n") as tunnels:
        proxy = f"http://ann:s3cret@127.0.0.1:{tunnels.port}"
        asking, noted = Karmada("https://127.0.0.1:1", proxyURL=proxy).members()
        assert await asking.ask(ASKED, seconds=60.0) is None
        told = noted["member1"]
        assert told is not None
        assert f"proxy 127.0.0.1:{tunnels.port}: tunnel connection failed: 403 forbidden" in told.problem
        assert "s3cret" not in told.problem


async def test_lies_about_amounts_stay_within_the_answer() -> None:
    nodes = [
        raw_node("huge", cpu="9223372036854775807", memory="8Ei", pods="9223372036854775807"),
        raw_node("less", cpu="-5", pods="-1"),
    ]

    def lie(request: Request, peer: Peer) -> None:
        peer.answer(200, {"metadata": {}, "items": nodes if request.path.endswith("/nodes") else []})

    async with scripted(lie) as karmada:
        asking, noted = karmada.members()
        found = await asking.ask(ASKED, seconds=60.0)
        assert found is not None, noted
        assert 0 <= found <= 2**31 - 1


async def test_an_amount_that_is_none_is_said() -> None:
    def lie(request: Request, peer: Peer) -> None:
        peer.answer(200, {"metadata": {}, "items": [raw_node("a", cpu="x")] if request.path.endswith("/nodes") else []})

    async with scripted(lie) as karmada:
        asking, noted = karmada.members()
        assert await asking.ask(ASKED, seconds=60.0) is None
        told = noted["member1"]
        assert told is not None
        assert told.problem.startswith("its objects cannot be read: not a quantity: 'x'")


@asynccontextmanager
async def scripted(script: Callable[[Request, Peer], None]) -> AsyncIterator[Karmada]:
    authority = trustme.CA()
    async with ScriptedServer(script, tls=server_tls(authority)) as server:
        yield Karmada(f"https://127.0.0.1:{server.port}", authority=pem_of(authority))


def endless(request: Request, peer: Peer) -> None:
    peer.answer(200, {"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "a"}, "x": "x" * 50_000}]})


SMALL = ReadingLimits(seconds=20.0, answer_seconds=0.5, bytes=1 << 20, answer_bytes=1 << 18, answer_braces=1_000)


@pytest.mark.parametrize(
    ("script", "limits", "problem"),
    [
        (lambda request, peer: peer.refuse(401, "Unauthorized"), SMALL, "401 Unauthorized: no"),
        (lambda request, peer: peer.refuse(403, "Forbidden"), SMALL, "403 Forbidden: no"),
        (lambda request, peer: peer.answer(302, {}, Location="https://127.0.0.1:1/"), SMALL, "302 error: no message"),
        (lambda request, peer: peer.answer(200, b"<html>"), SMALL, "the answer is not a list"),
        (lambda request, peer: None, SMALL, "no answer within 0.5 s"),
        (lambda request, peer: peer.close(), SMALL, "connection lost"),
        (lambda request, peer: peer.answer(200, b" " * (1 << 19)), replace(SMALL, answer_bytes=1 << 18), "longer than"),
        (lambda request, peer: peer.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n"), SMALL, "0.5 s"),
        (lambda request, peer: peer.answer(200, {"items": [{}] * 2_000}), SMALL, "more than 1,000 parts of objects"),
        (endless, SMALL, "its objects take more than 1 MiB, which is the limit"),
        (endless, replace(SMALL, bytes=1 << 30, objects=10), "it has more than 10 nodes, which is the limit"),
        (endless, replace(SMALL, seconds=0.0), "it cannot be read within 0 s"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
async def test_servers_at_their_worst(
    script: Callable[[Request, Peer], None], limits: ReadingLimits, problem: str
) -> None:
    async with scripted(script) as karmada:
        access = await member_access(cast(Any, karmada), "member1")
        with pytest.raises(KubeError) as raised:
            await read_member(access, limits)
        assert problem in str(raised.value)
        assert "t0ken" not in str(raised.value)


# --- what the control plane says ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "data", "problem"),
    [
        ({"apiEndpoint": ""}, {}, "its Cluster has no spec.apiEndpoint; expected https://HOST:PORT"),
        ({"apiEndpoint": "http://a"}, {}, "spec.apiEndpoint of its Cluster is 'http://a'; expected https://HOST:PORT"),
        ({"apiEndpoint": "https://a:b"}, {}, "expected https://HOST:PORT"),
        ({"apiEndpoint": "https://u:p@a"}, {}, "expected https://HOST:PORT"),
        ({"apiEndpoint": "https://a\r\nX: y"}, {}, "expected https://HOST:PORT"),
        ({"proxyURL": "socks5://p:s3cret@p"}, {}, "spec.proxyURL of its Cluster must begin with http:// or https://"),
        ({"proxyURL": "http://p:s3cret"}, {}, "spec.proxyURL of its Cluster is no URL; expected http://HOST:PORT"),
        ({"proxyURL": "http://p", "proxyHeader": {"X Y": "1"}}, {}, "'X Y' is no header that can be sent"),
        ({"proxyURL": "http://p", "proxyHeader": {"X": "s3cret\r\nY: 1"}}, {}, "'X' is no header that can be sent"),
        ({"proxyURL": "http://p", "proxyHeader": ["X"]}, {}, "its Cluster cannot be read"),
        ({"secretRef": None}, {}, "its Cluster has no spec.secretRef with the namespace and name of a Secret"),
        ({"secretRef": {"namespace": "..", "name": "x"}}, {}, "its Cluster has no spec.secretRef"),
        ({"secretRef": {"namespace": "a", "name": "b"}}, {}, "404"),
        ({"secretRef": 1}, {}, "its Cluster cannot be read"),
        ({}, {"token": ""}, "the Secret karmada-cluster/member1 has no `token`"),
        ({}, {"token": "$$$"}, "`token` of the Secret karmada-cluster/member1 is not text in base64"),
        ({}, {"token": encoded("s3cret\nHost: x")}, "the token contains invalid characters"),
        ({}, {"token": ["s3cret"]}, "the Secret karmada-cluster/member1 cannot be read"),
        ({}, {"caBundle": encoded("no certificate")}, "`caBundle` contains no usable CA certificate"),
        ({}, {"caBundle": encoded("schlüssel")}, "`caBundle` contains no usable CA certificate"),
    ],
)
async def test_what_is_missing_or_wrong_is_said(spec: dict[str, Any], data: dict[str, Any], problem: str) -> None:
    karmada = Karmada("https://127.0.0.1:1", authority=pem_of(trustme.CA()), token="s3cret")
    karmada.spec |= spec
    karmada.data |= data
    with pytest.raises(KubeError) as raised:
        await member_access(cast(Any, karmada), "member1")
    assert problem in str(raised.value)
    assert "s3cret" not in str(raised.value)


# --- a real API server -------------------------------------------------------------------------------------


@pytest.mark.long
async def test_a_real_api_server_is_read(tmp_path: Path) -> None:
    programs = assets()
    if programs is None:
        pytest.skip("needs KUBEBUILDER_ASSETS: an embedded API server is read in the tests above")
    with ControlPlane(programs, tmp_path / "plane") as plane:
        token = await asyncio.to_thread(account_token, plane.endpoint)
        karmada = Karmada(plane.endpoint.url, authority=plane.ca_file.read_text(), token=token)
        asking, noted = karmada.members()
        assert await asking.ask(ASKED, seconds=60.0) == 20, noted
        karmada.data["token"] = encoded("wrong")
        asking, noted = karmada.members()
        assert await asking.ask(ASKED, seconds=60.0) is None
        told = noted["member1"]
        assert told is not None
        assert told.problem.startswith("401")


def account_token(endpoint: Endpoint) -> str:
    """Make two nodes and an account that may read everything; return its token."""
    client, name = client_of(endpoint), "karmada-reader"
    for node in (raw_node("a"), raw_node("b")):
        posted(client, "/api/v1/nodes", node)
        path, status = f"/api/v1/nodes/{node['metadata']['name']}/status", {"status": node["status"]}
        assert client.send("PATCH", path, body=status, content_type="merge").code == 200
        ready = {"spec": {"taints": None}}  # nobody reports that it is ready, which would take the taint away
        assert client.send("PATCH", path.removesuffix("/status"), body=ready, content_type="merge").code == 200
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    posted(client, accounts, {"metadata": {"name": name}})
    granted = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    posted(client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", granted)
    found = posted(client, f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 3600}})
    return str(found["status"]["token"])


def posted(client: Client, path: str, body: dict[str, Any]) -> Any:
    answer = client.send("POST", path, body=body)
    assert answer.code == 201, answer
    return answer.body
