"""The extender's responses to recorded requests of kube-scheduler 1.36, and its errors."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from pathlib import Path

import aiohttp
import numpy as np
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kube_policy_scheduler.adapters.http.extender_protocol import read_nodes, read_preemption, write_filtered
from kube_policy_scheduler.adapters.kube.binding import Bound, Reason, Refused, Unknown
from kube_policy_scheduler.adapters.tls.client_certificates import Clients
from kube_policy_scheduler.adapters.tls.serving_certificate import ServingCertificate
from kube_policy_scheduler.daemon.configuration.settings import HttpSettings, Settings, TlsSettings
from kube_policy_scheduler.daemon.modes.selection import knows_clients
from kube_policy_scheduler.daemon.watching.freshness import AlwaysCurrent
from kube_policy_scheduler.policy.extension import priorities
from tests.adapters.kube.scripted_server import until
from tests.daemon.extender_stage import Json, Stage, pod, recorded
from tests.patience import PATIENCE_SECONDS


def three_nodes(**options: Json) -> Stage:
    stage = Stage(**options)
    stage.add_node("slow", disk="ssd")
    stage.add_node("fast", disk="ssd", speed="fast")
    stage.add_node("hdd", speed="fast")
    return stage


# --- what kube-scheduler sent ----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize("how", ["names", "nodes"])
async def test_a_recorded_request_gets_the_recorded_answer(how: str, verb: str) -> None:
    stage = Stage()
    for node in json.loads(recorded("nodes-filter")[0])["Nodes"]["items"]:
        stage.add_whole_node(node)
    request, answer = recorded(f"{how}-{verb}")
    async with stage.served() as client:
        assert await client.ask(verb, request) == answer


@pytest.mark.parametrize("how", ["names", "nodes"])
async def test_recorded_evictions_are_answered_as_recorded(how: str) -> None:
    stage = Stage()
    request, answer = recorded(f"{how}-preempt")
    sent = json.loads(request)
    field = "NodeNameToVictims" if how == "nodes" else "NodeNameToMetaVictims"
    for name, victims in sent[field].items():
        stage.add_node(name, disk="ssd")
        for victim in victims["Pods"]:
            uid = victim["UID"] if how == "names" else victim["metadata"]["uid"]
            placed = pod(f"on-{name}", app="other", priority=60 if name == "a" else 10, nodeName=name)
            stage.add_pod({**placed, "metadata": {**placed["metadata"], "uid": uid}})
    async with stage.served() as client:
        assert await client.ask("preempt", request) == answer


async def test_a_recorded_binding_is_carried_out() -> None:
    stage = Stage()
    request, answer = recorded("bind")
    sent = json.loads(request)
    stage.add_node(sent["Node"], disk="ssd")
    waits = pod(sent["PodName"])
    stage.add_pod({**waits, "metadata": {**waits["metadata"], "uid": sent["PodUID"]}})
    async with stage.served() as client:
        assert await client.ask("bind", request) == answer
    assert stage.binder.asked == [(sent["PodName"], sent["Node"])]


# --- what is decided -------------------------------------------------------------------------------------


async def test_only_the_policys_own_clauses_are_asked_unless_all_are_wanted() -> None:
    request = {"Pod": pod(nodeSelector={"disk": "nvme"}), "NodeNames": ["slow", "fast", "hdd"]}
    async with three_nodes().served() as client:
        assert (await client.ask("filter", request))["NodeNames"] == ["slow", "fast"]
    async with three_nodes(kubernetes_rules=True).served() as client:
        answer = await client.ask("filter", request)
        assert answer["NodeNames"] == []
        assert "node affinity/selector" in answer["FailedAndUnresolvableNodes"]["slow"]


async def test_a_request_that_is_written_as_a_number_beyond_64_bits_fits_nowhere() -> None:
    huge = pod(containers=[{"name": "main", "resources": {"requests": {"cpu": 10**30}}}])
    async with three_nodes(kubernetes_rules=True).served() as client:
        answer = await client.ask("filter", {"Pod": huge, "NodeNames": ["slow", "fast"]})
    assert answer["NodeNames"] == []
    why = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
    assert {*why.values()} == {"Insufficient cpu"}


async def test_a_node_is_refused_with_the_clause_that_refuses_it() -> None:
    stage = three_nodes()
    async with stage.served() as client:
        answer = await client.ask("filter", {"Pod": pod(), "NodeNames": ["hdd", "fast"]})
    why = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
    assert why == {"hdd": 'node(s) didn\'t match policy clause node.label.disk == "ssd"'}
    assert stage.counted("filter", "narrowed") == 1


async def test_a_pod_that_no_policy_governs_is_left_to_kube_scheduler() -> None:
    request = {"Pod": pod(app="other"), "NodeNames": ["slow", "fast", "hdd", "unheard-of"]}
    async with three_nodes().served() as client:
        assert (await client.ask("filter", request))["NodeNames"] == request["NodeNames"]
        assert {each["Score"] for each in await client.ask("prioritize", request)} == {0}


async def test_a_node_that_we_have_not_seen_is_not_taken_yet() -> None:
    async with three_nodes().served() as client:
        answer = await client.ask("filter", {"Pod": pod(), "NodeNames": ["new", "fast"]})
        assert answer["NodeNames"] == ["fast"]
        assert answer["FailedNodes"] == {"new": "node(s) that the policy scheduler has not seen yet"}
        scores = await client.ask("prioritize", {"Pod": pod(), "NodeNames": ["new", "fast", "slow"]})
        assert scores == [{"Host": "new", "Score": 0}, {"Host": "fast", "Score": 10}, {"Host": "slow", "Score": 0}]


async def test_a_pod_that_is_held_passes_no_node() -> None:
    stage = three_nodes(rules='policy apps\nhold if pod.label.app == "web" else "a later hour"\n')
    async with stage.served() as client:
        answer = await client.ask("filter", {"Pod": pod(), "NodeNames": ["slow", "fast"]})
    assert answer["NodeNames"] == []
    assert "a later hour" in answer["FailedAndUnresolvableNodes"]["slow"]
    assert stage.counted("filter", "rejected") == 1


async def test_a_binding_counts_at_once_and_a_quota_holds_in_a_burst() -> None:
    stage = three_nodes(rules="policy apps\nlimit count() by pod.label.app to 1\n")
    async with stage.served() as client:
        for name in ("p1", "p2"):
            answer = await client.ask("filter", {"Pod": pod(name), "NodeNames": ["slow"]})
            assert answer["NodeNames"] == ["slow"], "nothing is bound yet"
        body = {"PodNamespace": "default", "Node": "slow"}
        first = await client.ask("bind", {"PodName": "p1", "PodUID": "uid-p1", **body})
        second = await client.ask("bind", {"PodName": "p2", "PodUID": "uid-p2", **body})
    assert first == {"Error": ""}
    assert second["Error"].startswith("node slow no longer passes policy apps: ")
    assert stage.binder.asked == [("p1", "slow")]


async def test_a_refused_binding_gives_its_room_back() -> None:
    stage = three_nodes(rules="policy apps\nlimit count() by pod.label.app to 1\n")
    stage.binder.outcome = Refused(Reason.GONE, "no such pod")
    async with stage.served() as client:
        await client.ask("filter", {"Pod": pod("p1"), "NodeNames": ["slow"]})
        body = {"PodName": "p1", "PodUID": "uid-p1", "PodNamespace": "default", "Node": "slow"}
        assert await client.ask("bind", body) == {"Error": "binding to slow failed: no such pod"}
    assert stage.cluster.pods == {}
    assert stage.scheduler.cluster.assumed == {}


@pytest.mark.parametrize("truth", [Bound("slow"), Refused(Reason.GONE, "no such pod")], ids=["bound", "not bound"])
@pytest.mark.parametrize("broke", [True, False])
async def test_a_binding_in_doubt_keeps_its_room_until_that_is_known(truth: Bound | Refused, broke: bool) -> None:
    stage = three_nodes()
    binder, found = stage.binder, asyncio.get_running_loop().create_future()
    binder.outcome, binder.truth = Unknown("the answer was lost", since=0.0), found
    binder.error = KeyError("a fault of ours") if broke else None
    async with stage.served() as client:
        await client.ask("filter", {"Pod": pod("p1"), "NodeNames": ["slow"]})
        body = {"PodName": "p1", "PodUID": "uid-p1", "PodNamespace": "default", "Node": "slow"}
        assert (await client.ask("bind", body))["Error"].startswith("binding to slow has an unknown result: ")
        assert stage.scheduler.cluster.assumed == {"uid-p1": "slow"}
        binder.outcome, binder.error = Bound("slow"), None
        found.set_result(truth)
        if not isinstance(truth, Bound):
            await until(lambda: "uid-p1" not in stage.scheduler.cluster.assumed)
        assert await client.ask("bind", body) == {"Error": ""}
    assert stage.scheduler.cluster.assumed == {"uid-p1": "slow"}


@pytest.mark.parametrize(
    ("http", "binds"),
    [
        (HttpSettings(), True),
        (HttpSettings(host="0.0.0.0"), True),
        (HttpSettings(host="0.0.0.0", authentication="none"), False),
        (HttpSettings(host="0.0.0.0", tls=TlsSettings(), authentication="none"), False),
        (HttpSettings(host="0.0.0.0", tls=TlsSettings(client_ca_file=Path("ca.crt")), authentication="none"), True),
    ],
)
def test_nothing_is_bound_for_unknown_clients(http: HttpSettings, binds: bool) -> None:
    assert knows_clients(replace(Settings(), http=http).effective()) is binds


async def test_a_client_that_may_not_bind_gets_an_error() -> None:
    stage = three_nodes(binds=False)
    async with stage.served() as client:
        await client.ask("filter", {"Pod": pod("p1"), "NodeNames": ["slow"]})
        body = {"PodName": "p1", "PodUID": "uid-p1", "PodNamespace": "default", "Node": "slow"}
        assert "set http.tls.clientCaFile or http.authentication" in (await client.ask("bind", body))["Error"]
    assert stage.binder.asked == []


async def test_a_pod_without_an_earlier_request_is_not_bound() -> None:
    async with three_nodes().served() as client:
        body = {"PodName": "p1", "PodUID": "u", "PodNamespace": "default", "Node": "slow"}
        assert "default/p1 is unknown" in (await client.ask("bind", body))["Error"]


async def test_what_the_protocol_cannot_express_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    stage = three_nodes(rules="policy apps\norder by pod.name\nscore 1\n")
    async with stage.served() as client:
        for name in ("a", "b"):
            await client.ask("filter", {"Pod": pod(name), "NodeNames": ["slow"]})
    assert caplog.text.count("cannot use `order`: policy apps is evaluated without it") == 1


# --- what goes wrong -------------------------------------------------------------------------------------


class Lost(AlwaysCurrent):
    def __call__(self) -> bool:
        return False


async def test_before_it_is_ready_kube_scheduler_gets_an_error() -> None:
    stage = three_nodes(problem="no policies have been read yet")
    request = {"Pod": pod(), "NodeNames": ["slow"]}
    async with stage.served() as client:
        answer = await client.ask("filter", request)
        assert answer["Error"] == "not ready: no policies have been read yet"
        assert answer["NodeNames"] is None
        assert await client.post("prioritize", request) == (503, "not ready: no policies have been read yet\n")
        body = {"PodName": "p", "PodUID": "u", "PodNamespace": "default", "Node": "slow"}
        assert (await client.ask("bind", body))["Error"] == "not ready: no policies have been read yet"
    stage = three_nodes()
    stage.scheduler.view = Lost()
    async with stage.served() as client:
        assert "not current" in (await client.ask("filter", request))["Error"]


ANY_VALUE = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.lists(st.none(), max_size=1))


@given(data=st.data())
def test_a_message_with_anything_in_it_is_answered_or_refused(data: st.DataObject) -> None:
    verb = data.draw(st.sampled_from(["nodes-filter", "names-filter", "names-prioritize", "nodes-preempt"]))
    message = json.loads(recorded(verb)[0])
    for _ in range(data.draw(st.integers(1, 3))):
        _spoil(message, data)
    extender = three_nodes().extender
    body = json.dumps(message).encode()
    with suppress(ValueError):  # which the port answers with 400
        if verb.endswith("preempt"):
            extender.preempt(read_preemption(body))
        else:
            write_filtered(request := read_nodes(body), extender.filter(request))
            extender.prioritize(request)


def _spoil(message: Json, data: st.DataObject) -> None:
    """Replace one value somewhere inside by something else."""
    at = message
    while True:
        keys = list(at) if isinstance(at, dict) else range(len(at))
        key = data.draw(st.sampled_from(list(keys)))
        inner = at[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.integers(0, 4)) == 0:
            at[key] = data.draw(ANY_VALUE)
            return
        at = inner


@pytest.mark.parametrize(
    ("verb", "body", "told"),
    [
        ("filter", b"", "ExtenderArgs: Input data was truncated"),
        ("filter", b"[1]", "ExtenderArgs: Expected `object`, got `array`"),
        ("filter", {"NodeNames": ["n"]}, "ExtenderArgs: Object missing required field `Pod`"),
        ("filter", {"Pod": pod()}, "expected NodeNames (nodeCacheCapable: true) or Nodes, got neither"),
        ("filter", {"Pod": {"metadata": {}}, "NodeNames": []}, "Pod.metadata needs a name and a uid"),
        ("prioritize", {"Pod": pod(), "Nodes": {"items": [{"kind": "Node"}]}}, "Nodes.items[0]: Object missing"),
        ("preempt", {"Pod": 1}, "ExtenderPreemptionArgs: Expected `object`, got `int` - at `$.Pod`"),
        (
            "bind",
            {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": ""},
            "ExtenderBindingArgs: node is empty",
        ),
        ("filter", {"Pod": pod(overhead={"cpu": "a lot"}), "NodeNames": ["slow"]}, "a lot"),
        ("bind", b"\xff\xfe", "ExtenderBindingArgs: "),
    ],
)
async def test_a_body_that_is_not_a_message_is_refused(verb: str, body: Json, told: str) -> None:
    stage = three_nodes()
    async with stage.served() as client:
        code, text = await client.post(verb, body)
    assert (code, told in text) == (400, True), text
    assert stage.counted(verb, "error") == 1


async def test_a_body_over_the_limit_is_refused_and_the_next_one_is_not() -> None:
    stage = three_nodes(max_bytes=2000)
    async with stage.served() as client:
        code, text = await client.post("filter", b" " * 2001)
        assert (code, "extender.maxRequestMebibytes" in text) == (413, True)

        async def pieces() -> object:
            for _ in range(30):
                yield b" " * 100

        async with client.session.post(f"{client.url}/extender/filter", data=pieces()) as answer:
            assert answer.status == 413, "without a length announced"
        assert (await client.ask("filter", {"Pod": pod(), "NodeNames": ["slow"]}))["NodeNames"] == ["slow"]


async def test_other_paths_still_take_no_body() -> None:
    async with three_nodes().served() as client, client.session.post(f"{client.url}/metrics", data=b"x") as answer:
        assert answer.status == 413


async def test_with_an_authority_only_its_clients_may_ask(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    ca_file = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(ca_file)
    clients = Clients(frozenset({"system:kube-scheduler"}))
    certificate = ServingCertificate(client_ca_file=ca_file, clients=clients)

    def presenting(authority: trustme.CA | None, name: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if authority is not None:
            authority.issue_cert("client.invalid", common_name=name).configure_cert(context)
        return context

    request = {"Pod": pod(), "NodeNames": ["slow"]}
    async with three_nodes().served(certificate=certificate) as client:
        ours = presenting(authority, "system:kube-scheduler")
        assert (await client.ask("filter", request, ssl=ours))["NodeNames"] == ["slow"]
        assert await client.post("filter", request, ssl=presenting(None)) == (
            401,
            "a client certificate is required\n",
        )
        other = presenting(authority, "system:node:n1")
        assert await client.post("filter", request, ssl=other) == (403, "system:node:n1 has no permission for this\n")
        async with client.session.get(f"{client.url}/metrics", ssl=presenting(None)) as answer:
            assert answer.status == 200, "who only looks needs none"
        with pytest.raises(aiohttp.ClientError):
            await client.post("filter", request, ssl=presenting(stranger, "system:kube-scheduler"))


async def test_a_renewed_authority_is_taken_over_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = trustme.CA(), trustme.CA()
    ca_file = tmp_path / "ca.crt"
    first.cert_pem.write_to_path(ca_file)
    certificate = ServingCertificate(client_ca_file=ca_file)
    ca_file.write_text("no certificate")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    second.issue_cert("client.invalid").configure_cert(context)
    request = {"Pod": pod(), "NodeNames": ["slow"]}
    keeping = asyncio.create_task(certificate.keep(every_seconds=0.01))
    try:
        async with three_nodes().served(certificate=certificate) as client:
            await until(lambda: "failed to load the renewed" in caplog.text)
            with pytest.raises(aiohttp.ClientError):
                await client.post("filter", request, ssl=context)
            second.cert_pem.write_to_path(ca_file)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    with suppress(aiohttp.ClientError):
                        assert (await client.ask("filter", request, ssl=context))["NodeNames"] == ["slow"]
                        break
                    await asyncio.sleep(0.02)
        assert not keeping.done()
    finally:
        keeping.cancel()


# --- scores ----------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50))
def test_priorities_keep_the_order_and_ten_is_for_the_best_alone(totals: list[float]) -> None:
    found = priorities(np.array(totals), most=10)
    assert found.min() >= 0
    order = np.argsort(totals, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    if max(totals) > min(totals):
        assert [score == 10 for score in found] == [total == max(totals) for total in totals]
    else:
        assert not found.any()
