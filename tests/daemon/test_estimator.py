"""An estimator for Karmada on a cluster in memory, behind its real port: the answers are those of `capacity`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import msgspec
import pytest
import trustme

from kube_policy_scheduler.adapters.grpc import estimator_pb2 as messages
from kube_policy_scheduler.adapters.grpc.estimator_client import EstimatorClient, EstimatorError
from kube_policy_scheduler.adapters.grpc.estimator_messages import MOST_BYTES, REPLICAS, SERVICE, UNSCHEDULABLE
from kube_policy_scheduler.adapters.grpc.estimator_probe import ProbedEstimator, probe
from kube_policy_scheduler.adapters.grpc.estimator_server import EstimatorServer
from kube_policy_scheduler.adapters.grpc.grpc_tls import Renewed, TlsFiles
from kube_policy_scheduler.adapters.http.port import ServerError
from kube_policy_scheduler.adapters.kube.errors import Forbidden, NotFound
from kube_policy_scheduler.adapters.tls.serving_certificate import LOOK_EVERY_SECONDS, CertificateError
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.modes import estimated_pods
from kube_policy_scheduler.daemon.modes.estimated_pods import PodTemplates
from kube_policy_scheduler.daemon.modes.estimator import FRESH_SECONDS, LAST_GOOD_SECONDS, SETTLING_SECONDS, Estimator
from kube_policy_scheduler.daemon.modes.pods_without_node import MOST_PAGES, PodsWithoutNode
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.estimator_settings import EstimatorsSettings
from kube_policy_scheduler.fleet.karmada.estimates import (
    Assumed,
    Demand,
    Part,
    ReplicasQuestion,
    SetsQuestion,
    TemplateName,
    UnschedulableQuestion,
)
from kube_policy_scheduler.policy.policy_set import load
from tests.fakes.scheduler_context import context_of
from tests.patience import PATIENCE_SECONDS
from tests.tooling.worlds import things_of

NOON = 1_767_268_800.0
"""2026-01-01T12:00:00Z in Unix seconds."""
HOSTNAME = "kubernetes.io/hostname"
ONE_CORE = Demand({"cpu": "1"})
ASKED = ReplicasQuestion("member1", "shop", ONE_CORE)
WEB = TemplateName("Deployment", "shop", "web")
ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
        ]
    }
}


@dataclass
class FakeApi:
    """Serves workloads by their path."""

    objects: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    hangs: bool = False
    asked: list[str] = field(default_factory=list)

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        self.asked.append(path)
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        if path not in self.objects:
            raise NotFound("not found", status=404)
        return msgspec.json.encode(self.objects[path])

    def add(self, labels: dict[str, str], **spec: Any) -> None:
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "env": [{}]}], **spec}}
        self.objects["/apis/apps/v1/namespaces/shop/deployments/web"] = {"spec": {"template": template}}


class Stage:
    """An estimator and what it looks at: two nodes with ten cores."""

    def __init__(self, policy: str = "filter fits(cpu, mem)\n", **more: Any) -> None:
        self.now = 100.0
        self.problem: str | None = None
        self.api = FakeApi()
        self.cluster = Cluster()
        for name in ("a", "b"):
            self.add_node(name)
        self.scheduler = Scheduler(context_of(cast(Any, object()), self.cluster, clock=lambda: 1_800_000_000.0))
        self.use(policy)
        self.metrics = SchedulerMetrics(version=lambda: "1")
        self.estimator = Estimator(
            self.scheduler,
            cluster_name="member1",
            scheduler_name="policy-scheduler",
            templates=PodTemplates(cast(Any, self.api)),
            problem=lambda: self.problem,
            metrics=self.metrics.estimator,
            stopwatch=lambda: self.now,
            **more,
        )
        self.pods = PodsWithoutNode(
            cast(Any, self.api), cluster_name="member1", metrics=self.metrics.estimator, clock=lambda: NOON
        )

    def use(self, policy: str) -> None:
        names = frozenset({"policy-scheduler"})
        loaded = load([Source("a.policy", policy)], default_schedulers=names)
        assert loaded.policy_set is not None, loaded.diagnostics
        self.scheduler.use_policies(LivePolicies(loaded.policy_set, scheduler_names=names, watched=frozenset()))

    def add_node(self, name: str, cpu: int = 10) -> None:
        (made,) = things_of([{"name": name, "cpu": cpu, "mem": "64Gi", "labels": {HOSTNAME: name}}], [])
        self.cluster.set_node(made)

    async def ask(self, question: ReplicasQuestion = ASKED) -> int:
        return await self.estimator.replicas(question, seconds=5.0)

    def counted(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"policy_scheduler_estimator_{metric}_total", labels) or 0.0


def about(template: TemplateName, demand: Demand = ONE_CORE) -> ReplicasQuestion:
    return ReplicasQuestion("member1", "shop", demand, template=template)


# --- what is answered ------------------------------------------------------------------------------------


async def test_a_request_alone_says_what_resources_have_room_for() -> None:
    stage = Stage()
    assert await stage.ask(about(WEB)) == 20
    assert stage.counted("computations", source="request", result="whole") == 1


async def test_the_template_in_the_cluster_adds_that_replicas_keep_apart() -> None:
    stage = Stage()
    stage.api.add({"app": "web"}, affinity=ANTI_AFFINITY, schedulerName="policy-scheduler")
    assert await stage.ask(about(WEB)) == 2
    assert stage.counted("computations", source="template", result="whole") == 1


async def test_policies_decide_about_pods_of_their_schedulers_alone() -> None:
    stage = Stage('filter fits(cpu, mem) and node.name == "a"\n')
    assert await stage.ask() == 10
    stage.api.add({"app": "web"}, schedulerName="default-scheduler")
    assert await stage.ask(about(WEB)) == 20


async def test_what_is_tried_out_leaves_no_trace() -> None:
    stage = Stage()
    stage.api.add({"app": "web"}, affinity=ANTI_AFFINITY)
    epoch = stage.cluster.ledger.epoch
    await stage.ask(about(WEB))
    assert not stage.cluster.pods
    assert stage.cluster.ledger.epoch == epoch


async def test_replicas_on_their_way_take_room() -> None:
    stage = Stage()
    assumed = Assumed("shop", (Part(Demand({"cpu": "2"}), 3),))
    assert await stage.ask(ReplicasQuestion("member1", "shop", ONE_CORE, (assumed,))) == 14


async def test_sets_are_whole() -> None:
    stage = Stage()
    parts = Part(Demand({"cpu": "6"}), 1, "manager"), Part(Demand({"cpu": "1"}), 2, "worker")
    assert await stage.estimator.sets(SetsQuestion("member1", "shop", parts), seconds=5.0) == 2


@pytest.mark.parametrize(
    ("demand", "room"),
    [
        (Demand({"cpu": "11"}), 0),
        (Demand({"cpu": "0"}), 220),
        (Demand({"nvidia.com/gpu": "1"}), 0),
        (Demand({"cpu": "1"}, {HOSTNAME: "a"}), 10),
        (Demand({"cpu": "9000000000000000000"}), 0),
    ],
)
async def test_room_for_other_demands(demand: Demand, room: int) -> None:
    assert await Stage().ask(ReplicasQuestion("member1", "shop", demand)) == room


async def test_there_is_no_opinion_about_another_cluster_or_while_not_ready() -> None:
    stage = Stage()
    assert await stage.ask(ReplicasQuestion("member2", "shop", ONE_CORE)) == -1
    stage.problem = "the first lists are not complete"
    assert await stage.ask() == -1
    assert stage.counted("answers", answer="none") == 2


@pytest.mark.parametrize(
    "template",
    [TemplateName("Secret", "shop", "web"), TemplateName("Deployment", "", "web"), TemplateName("Foo", "shop", "web")],
)
async def test_only_workloads_are_read(template: TemplateName) -> None:
    stage = Stage()
    assert await stage.ask(about(template)) == 20
    assert not stage.api.asked


async def test_a_template_that_cannot_be_used_is_no_error() -> None:
    stage = Stage()
    stage.api.objects["/apis/apps/v1/namespaces/shop/deployments/web"] = {"spec": {"template": {"spec": []}}}
    assert await stage.ask(about(WEB)) == 20


async def test_a_template_that_does_not_come_in_time_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    monkeypatch.setattr(estimated_pods, "READ_SECONDS", 0.0)
    stage.api.hangs = True
    assert await stage.ask(about(WEB)) == 20


# --- how long an answer counts ---------------------------------------------------------------------------


async def test_an_answer_counts_until_something_changes() -> None:
    stage = Stage()
    assert await stage.ask() == 20
    stage.now += FRESH_SECONDS - 1
    assert await stage.ask() == 20
    assert stage.counted("answers", answer="kept") == 1
    stage.add_node("c")
    assert await stage.ask() == 30
    stage.now += SETTLING_SECONDS
    stage.use('filter fits(cpu, mem) and node.name == "a"\n')
    assert await stage.ask() == 10


async def test_changes_within_a_second_do_not_have_it_computed_again() -> None:
    stage = Stage()
    assert await stage.ask() == 20
    stage.add_node("c")
    assert await stage.ask() == 20
    stage.now += SETTLING_SECONDS
    assert await stage.ask() == 30


async def test_the_last_good_answer_counts_where_a_new_one_is_late() -> None:
    stage = Stage()
    assert await stage.ask() == 20
    stage.now += FRESH_SECONDS
    assert await stage.estimator.replicas(ASKED, seconds=0.0) == 20
    assert stage.counted("answers", answer="last") == 1
    stage.now += LAST_GOOD_SECONDS
    late = ReplicasQuestion("member1", "shop", Demand({"cpu": "2"}))
    assert await stage.estimator.replicas(late, seconds=0.0) == -1


async def test_questions_that_are_alike_are_computed_once() -> None:
    stage = Stage()
    assert await asyncio.gather(*(stage.ask() for _ in range(20))) == [20] * 20
    assert stage.counted("computations", source="request", result="whole") == 1


async def test_an_answer_that_takes_too_long_is_what_fits_so_far() -> None:
    stage = Stage(most_seconds=0.0)
    stage.api.add({"app": "web"}, affinity=ANTI_AFFINITY)
    assert await stage.ask(about(WEB)) == 0
    assert stage.counted("computations", source="template", result="partial") == 1


# --- pods without a node ---------------------------------------------------------------------------------

DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"
SETS, PODS = "/apis/apps/v1/namespaces/shop/replicasets", "/api/v1/namespaces/shop/pods"
SELECTOR = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
}
BY_LABELS = "labelSelector=app%3Dweb%2Ctier+in+%28a%2Cb%29"
LISTED_SETS = f"{SETS}?{BY_LABELS}&limit=500"
LISTED_PODS = f"{PODS}?{BY_LABELS}&fieldSelector=spec.nodeName%3D&limit=500"
WAITING = UnschedulableQuestion("member1", WEB, threshold_seconds=300.0)


def owned(owner: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{"uid": owner, "controller": True}], **more}}


def waiting_pod(owner: str = "set-1", *, since: str = "11:50:00", reason: str = "Unschedulable", **more: Any) -> Any:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "lastTransitionTime": f"2026-01-01T{since}Z",
    }
    return owned(owner, **more) | {"status": {"conditions": [condition]}}


def with_pods(stage: Stage, *pods: Any) -> Stage:
    """Serve a Deployment `web` with two ReplicaSets, and pods."""
    stage.api.objects |= {
        DEPLOYMENT: {"metadata": {"uid": "web-1"}, "spec": {"selector": SELECTOR}},
        LISTED_SETS: {"items": [owned("web-1", uid="set-1"), owned("web-1", uid="set-2"), owned("other", uid="set-3")]},
        LISTED_PODS: {"items": list(pods)},
    }
    return stage


@pytest.mark.parametrize(
    ("pod", "counts"),
    [
        (waiting_pod(), True),
        (waiting_pod("set-2"), True),
        (waiting_pod("set-3"), False),
        (waiting_pod(since="11:55:01"), False),
        (waiting_pod(since="noon"), False),
        (waiting_pod(reason="SchedulingGated"), False),
        (waiting_pod(deletionTimestamp="2026-01-01T11:59:00Z"), False),
        (owned("set-1"), False),
    ],
)
async def test_a_pod_of_the_workload_counts_if_it_has_had_no_node_for_so_long(pod: Any, counts: bool) -> None:
    stage = with_pods(Stage(), pod)
    assert await stage.pods.unschedulable(WAITING, seconds=5.0) == int(counts)
    assert stage.counted("answers", answer="counted") == 1


async def test_the_pods_of_other_kinds_are_theirs_alone_and_long_lists_come_in_pages() -> None:
    stage = Stage()
    job = UnschedulableQuestion("member1", TemplateName("Job", "shop", "train"))
    uid = {"matchLabels": {"batch.kubernetes.io/controller-uid": "j"}}
    stage.api.objects["/apis/batch/v1/namespaces/shop/jobs/train"] = {
        "metadata": {"uid": "j"},
        "spec": {"selector": uid},
    }
    first = f"{PODS}?labelSelector=batch.kubernetes.io%2Fcontroller-uid%3Dj&fieldSelector=spec.nodeName%3D&limit=500"
    pods = [waiting_pod("j"), waiting_pod("k")]
    stage.api.objects |= {
        first: {"items": pods, "metadata": {"continue": "next"}},
        f"{first}&continue=next": {"items": pods},
    }
    assert await stage.pods.unschedulable(job, seconds=5.0) == 2
    stage.api.objects[f"{first}&continue=next"] = {"items": pods, "metadata": {"continue": "next"}}
    assert await stage.pods.unschedulable(job, seconds=5.0) == MOST_PAGES


@pytest.mark.parametrize(
    "question",
    [
        msgspec.structs.replace(WAITING, cluster="member2"),
        msgspec.structs.replace(WAITING, workload=TemplateName("Foo", "shop", "web")),
        msgspec.structs.replace(WAITING, workload=TemplateName("Deployment", "shop", "gone")),
    ],
)
async def test_there_is_no_opinion_about_what_is_not_here(question: UnschedulableQuestion) -> None:
    stage = with_pods(Stage(), waiting_pod())
    assert await stage.pods.unschedulable(question, seconds=5.0) == -1
    assert stage.counted("answers", answer="none") == 1


@pytest.mark.parametrize(
    "spec",
    [{}, {"selector": {}}, {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, {"selector": "web"}],
)
async def test_a_workload_whose_pods_cannot_be_selected_has_no_answer(spec: dict[str, Any]) -> None:
    stage = with_pods(Stage(), waiting_pod())
    stage.api.objects[DEPLOYMENT] = {"metadata": {"uid": "web-1"}, "spec": spec}
    assert await stage.pods.unschedulable(WAITING, seconds=5.0) == -1


async def test_an_api_server_that_hangs_or_refuses_is_no_opinion_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = with_pods(Stage(), waiting_pod())
    stage.api.error = Forbidden("pods is forbidden", status=403)
    for _ in range(2):
        assert await stage.pods.unschedulable(WAITING, seconds=5.0) == -1
    stage.api.error, stage.api.hangs = None, True
    assert await stage.pods.unschedulable(WAITING, seconds=0.0) == -1
    assert [each.getMessage() for each in caplog.records] == ["pods without a node cannot be counted"]
    stage.api.hangs = False
    assert await stage.pods.unschedulable(WAITING, seconds=5.0) == 1


# --- the port --------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(stage: Stage, certificates: Renewed | None = None) -> AsyncIterator[str]:
    async with EstimatorServer(
        stage.estimator, stage.pods, host="127.0.0.1", port=0, certificates=certificates
    ) as server:
        yield server.address


@asynccontextmanager
async def client_of(address: str, certificates: Renewed | None = None) -> AsyncIterator[EstimatorClient]:
    client = EstimatorClient(address, certificates=certificates)
    try:
        yield client
    finally:
        await client.close()


async def test_a_client_gets_the_answer_about_the_template_that_it_names() -> None:
    stage = Stage()
    stage.api.add({"app": "web"}, affinity=ANTI_AFFINITY)
    async with served(stage) as address, client_of(address) as client:
        assert (await client.ask(about(WEB), seconds=PATIENCE_SECONDS)).room == 2
        assert (await client.ask(ASKED, seconds=PATIENCE_SECONDS)).room == 20
        sets = SetsQuestion("member1", "shop", (Part(Demand({"cpu": "6"}), 1), Part(ONE_CORE, 2)))
        assert (await client.ask(sets, seconds=PATIENCE_SECONDS)).room == 2
        assert (await client.ask(ReplicasQuestion("member2", "shop", ONE_CORE), seconds=PATIENCE_SECONDS)).room == -1


async def test_the_descheduler_gets_its_answer_by_the_protocol() -> None:
    stage = with_pods(Stage(), waiting_pod(), waiting_pod(since="11:59:00"))
    asked = messages.UnschedulableReplicasRequest(cluster="member1", threshold_nanoseconds=300 * 10**9)
    asked.resource.kind, asked.resource.namespace, asked.resource.name = "Deployment", "shop", "web"
    async with served(stage) as address, grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(f"/{SERVICE}/{UNSCHEDULABLE}")
        answer = messages.UnschedulableReplicasResponse.FromString(
            await call(asked.SerializeToString(), timeout=PATIENCE_SECONDS)
        )
        assert answer.unschedulable_replicas == 1
        asked.threshold_nanoseconds = -1
        with pytest.raises(grpc.aio.AioRpcError, match="the threshold is -1 ns; expected 0 or more"):
            await call(asked.SerializeToString(), timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("method", "body", "code"),
    [
        (REPLICAS, b"\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
        (REPLICAS, b"x" * (MOST_BYTES + 1), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (UNSCHEDULABLE, b"\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
        (UNSCHEDULABLE, b"", grpc.StatusCode.INVALID_ARGUMENT),
        ("Other", b"", grpc.StatusCode.UNIMPLEMENTED),
    ],
)
async def test_what_cannot_be_answered_is_refused(method: str, body: bytes, code: grpc.StatusCode) -> None:
    stage = Stage()
    async with served(stage) as address, grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(f"/{SERVICE}/{method}")(body, timeout=PATIENCE_SECONDS)
    assert refused.value.code() is code


async def test_a_taken_port_is_an_error() -> None:
    async with served(Stage()) as address:
        server = EstimatorServer(
            Stage().estimator,
            Stage().pods,
            host="127.0.0.1",
            port=int(address.rpartition(":")[2]),
            certificates=None,
        )
        with pytest.raises(ServerError, match=r"cannot listen at 127\.0\.0\.1"):
            await server.__aenter__()


async def test_a_server_that_is_not_there_says_why() -> None:
    async with client_of("127.0.0.1:1") as client:
        with pytest.raises(EstimatorError, match="UNAVAILABLE"):
            await client.ask(ASKED, seconds=PATIENCE_SECONDS)


# --- certificates ----------------------------------------------------------------------------------------


def files(folder: Path, made_by: trustme.CA, trusted: trustme.CA) -> TlsFiles:
    made = made_by.issue_cert("127.0.0.1", "localhost")
    folder.mkdir(exist_ok=True)
    found = TlsFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
    (folder / "tls.crt").write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
    made.private_key_pem.write_to_path(folder / "tls.key")
    trusted.cert_pem.write_to_path(folder / "ca.crt")
    return found


async def test_both_sides_show_a_certificate(tmp_path: Path) -> None:
    ours, others = trustme.CA(), trustme.CA()
    server = Renewed(files(tmp_path / "server", ours, ours))
    async with served(Stage(), server) as address:
        async with client_of(address, Renewed(files(tmp_path / "client", ours, ours))) as client:
            assert (await client.ask(ASKED, seconds=PATIENCE_SECONDS)).room == 20
        for stranger in (
            Renewed(files(tmp_path / "stranger", others, ours)),
            Renewed(TlsFiles(authority=tmp_path / "client" / "ca.crt")),
            None,
        ):
            async with client_of(address, stranger) as client:
                with pytest.raises(EstimatorError, match="UNAVAILABLE"):
                    await client.ask(ASKED, seconds=PATIENCE_SECONDS)


async def test_a_probe_says_how_an_estimator_answers_and_until_when_its_certificate_lasts(tmp_path: Path) -> None:
    ours, others, member = trustme.CA(), trustme.CA(), "127.0.0.1"
    server, client = files(tmp_path / "server", ours, ours), files(tmp_path / "client", ours, ours)
    stranger = files(tmp_path / "stranger", others, ours)
    async with served(Stage(), Renewed(server)) as address:
        port = address.rpartition(":")[2]

        async def probed(cluster: str, tls: TlsFiles) -> ProbedEstimator:
            asked = EstimatorsSettings(f"{{cluster}}:{port}", tls.authority, tls.certificate, tls.key, timeout=20.0)
            (found,) = await asyncio.to_thread(probe, asked, [cluster])
            return found

        found = await probed(member, client)
        assert (found.problem, found.room, found.source) == ("", -1, "capacity"), "it has another name"
        assert found.version == metadata.version("kube-policy-scheduler")
        assert found.expires is not None
        assert found.expires > 1_800_000_000
        assert "UNAVAILABLE" in (await probed(member, stranger)).problem
        assert "UNAVAILABLE" in (await probed("localhost.invalid", client)).problem


async def test_a_probe_leaves_no_connection_open_though_the_server_is_slow_to_close_it(tmp_path: Path) -> None:
    authority = trustme.CA()
    server, client = files(tmp_path / "server", authority, authority), files(tmp_path / "client", authority, authority)
    async with served(Stage(), Renewed(server)) as address, asyncio.TaskGroup() as tasks:

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: float) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65536):
                    await asyncio.sleep(seconds)
                    sink.write(data)
            sink.close()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host, _, port = address.rpartition(":")
            from_server, to_server = await asyncio.open_connection(host, int(port))
            tasks.create_task(pass_on(reader, to_server, 0.0))
            tasks.create_task(pass_on(from_server, writer, 0.2))

        slow = await asyncio.start_server(connected, "127.0.0.1", 0)
        port = slow.sockets[0].getsockname()[1]
        asked = EstimatorsSettings(
            f"{{cluster}}:{port}", client.authority, client.certificate, client.key, timeout=PATIENCE_SECONDS
        )
        (found,) = await asyncio.to_thread(probe, asked, ["127.0.0.1"])
        slow.close()
        assert found.expires is not None
        gc.collect()  # what is open and of nobody is an error now


async def test_renewed_certificates_are_taken_over_and_wrong_ones_are_not(tmp_path: Path) -> None:
    first, second, now = trustme.CA(), trustme.CA(), [0.0]
    server = Renewed(files(tmp_path / "server", first, first), stopwatch=lambda: now[0])
    async with served(Stage(), server) as address:
        async with client_of(address, Renewed(files(tmp_path / "client", first, first))) as client:
            assert (await client.ask(ASKED, seconds=PATIENCE_SECONDS)).room == 20
        files(tmp_path / "server", second, second)
        (tmp_path / "server" / "tls.key").write_text("nonsense")
        now[0] += LOOK_EVERY_SECONDS
        async with client_of(address, Renewed(files(tmp_path / "client", first, first))) as client:
            assert (await client.ask(ASKED, seconds=PATIENCE_SECONDS)).room == 20
        files(tmp_path / "server", second, second)
        now[0] += LOOK_EVERY_SECONDS
        async with client_of(address, Renewed(files(tmp_path / "client", second, second))) as client:
            assert (await client.ask(ASKED, seconds=PATIENCE_SECONDS)).room == 20


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("tls.crt", "nonsense", "are not a certificate and its key"),
        ("tls.key", "nonsense", "are not a certificate and its key"),
        ("ca.crt", "nonsense", "contains no CA certificates in PEM"),
        ("ca.crt", None, "ca.crt"),
    ],
)
def test_files_that_cannot_be_used_are_errors(tmp_path: Path, name: str, text: str | None, why: str) -> None:
    authority = trustme.CA()
    given = files(tmp_path / "server", authority, authority)
    if text is None:
        (tmp_path / "server" / name).unlink()
    else:
        (tmp_path / "server" / name).write_text(text)
    with pytest.raises(CertificateError, match=why):
        Renewed(given)


def test_a_key_of_another_certificate_is_an_error(tmp_path: Path) -> None:
    authority = trustme.CA()
    given, other = files(tmp_path / "a", authority, authority), files(tmp_path / "b", authority, authority)
    with pytest.raises(CertificateError, match="is not the key of the certificate"):
        Renewed(TlsFiles(given.certificate, other.key))
