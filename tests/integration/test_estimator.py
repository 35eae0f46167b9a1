"""The estimator as a process: it watches a cluster, and answers by Karmada's protocol with mutual TLS."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import grpc.aio
import trustme
import yaml

from kube_policy_scheduler.adapters.grpc import estimator_pb2 as messages
from kube_policy_scheduler.adapters.grpc.estimator_client import EstimatorClient, EstimatorError
from kube_policy_scheduler.adapters.grpc.estimator_messages import SERVICE, UNSCHEDULABLE
from kube_policy_scheduler.adapters.grpc.grpc_tls import Renewed, TlsFiles, channel_credentials
from kube_policy_scheduler.daemon.configuration.settings import API_VERSION, KIND
from kube_policy_scheduler.fleet.karmada.estimates import Demand, Question, ReplicasQuestion, TemplateName
from tests.daemon.test_estimator import ANTI_AFFINITY, HOSTNAME, files
from tests.deploy.manifests import DEPLOY
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.karmada import Karmada
from tests.integration.objects import node, pod
from tests.integration.process import SchedulerProcess

ASKED = ReplicasQuestion("member1", "default", Demand({"cpu": "1"}))
WEB = ReplicasQuestion(
    "member1", "default", Demand({"cpu": "1"}), template=TemplateName("Deployment", "default", "web")
)


def ask(address: str, certificates: TlsFiles, question: Question) -> int | str:
    """Return an answer, or why there is none."""

    async def asking() -> int | str:
        client = EstimatorClient(address, certificates=Renewed(certificates))
        try:
            return (await client.ask(question, seconds=10.0)).room
        except EstimatorError as error:
            return str(error)
        finally:
            await client.close()

    return asyncio.run(asking())


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def test_a_client_with_a_certificate_learns_what_fits(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(*(node(name, cpu="10", labels={HOSTNAME: name}) for name in ("a", "b")))
    authority, stranger, port = trustme.CA(), trustme.CA(), free_port()
    server = files(tmp_path / "server", authority, authority)
    config = yaml.safe_load((DEPLOY / "overlays" / "estimator" / "config.yaml").read_text())
    config["estimator"] |= {
        "host": "127.0.0.1",
        "port": port,
        "certificateFile": str(server.certificate),
        "keyFile": str(server.key),
        "clientCaFile": str(server.authority),
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    process = scheduler(f"--config={tmp_path / 'config.yaml'}").start_ready()
    address, ours = f"127.0.0.1:{port}", files(tmp_path / "client", authority, authority)
    eventually(lambda: ask(address, ours, ASKED) == 20, else_=process.log)
    assert "UNAVAILABLE" in str(ask(address, files(tmp_path / "stranger", stranger, authority), ASKED))
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web"}], "affinity": ANTI_AFFINITY},
    }
    cluster.api.create(
        "deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
        },
    )
    assert ask(address, ours, WEB) == 2
    assert waiting_pods(address, ours) == -1
    add_replica_set_with_a_pod(cluster)

    def counted() -> bool:
        find_no_node(cluster, {"app": "far"})
        return waiting_pods(address, ours) == 1

    eventually(counted)


def add_replica_set_with_a_pod(cluster: Cluster) -> None:
    """Create a ReplicaSet with one pod; where a controller runs, it may make its own, and delete this one."""
    api, labels = cluster.api, {"app": "far"}
    containers = [{"name": "far", "image": "far"}]
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }
    head = {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    made = api.create("replicasets", head | {"metadata": {"name": "far"}, "spec": spec})
    waits = pod("far-a", cpu="1", scheduler="nobody", labels=labels)
    waits["metadata"]["ownerReferences"] = [head | {"name": "far", "uid": made["metadata"]["uid"], "controller": True}]
    api.create("pods", waits)


def find_no_node(cluster: Cluster, labels: dict[str, str]) -> None:
    """Mark the pods with these labels as their scheduler does that finds no node."""
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"conditions": [said | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    for each in cluster.pods():
        if each["metadata"].get("labels") == labels:
            cluster.api.patch("pods", each["metadata"]["name"], {"status": status}, subresource="status")


def waiting_pods(address: str, certificates: TlsFiles) -> int:
    """Ask as Karmada's descheduler does."""
    asked = messages.UnschedulableReplicasRequest(cluster="member1", threshold_nanoseconds=300 * 10**9)
    asked.resource.kind, asked.resource.namespace, asked.resource.name = "ReplicaSet", "default", "far"

    async def asking() -> int:
        async with grpc.aio.secure_channel(address, channel_credentials(Renewed(certificates).pem)) as channel:
            call = channel.unary_unary(f"/{SERVICE}/{UNSCHEDULABLE}")
            answer = await call(asked.SerializeToString(), timeout=10.0)
        found: int = messages.UnschedulableReplicasResponse.FromString(answer).unschedulable_replicas
        return found

    return asyncio.run(asking())


def test_the_decision_maker_of_a_fleet_asks_each_cluster_for_its_room(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    member, port = "127.0.0.1", free_port()
    cluster.add_nodes(*(node(name, cpu="10", labels={HOSTNAME: name}) for name in ("a", "b")))
    karmada = Karmada(cluster.api)
    karmada.add_cluster(member, cpu=60)
    karmada.add_cluster("without-estimator", cpu=10)
    told = {"apiVersion": API_VERSION, "kind": KIND}
    estimator = {"mode": "estimator", "estimator": {"clusterName": member, "port": port}}
    fleet = {"fleet": {"estimators": {"address": f"{{cluster}}:{port}"}}}
    for name, settings in (("estimator", estimator), ("fleet", fleet)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(told | settings))
    scheduler(f"--config={tmp_path / 'estimator.yaml'}").start_ready()
    arguments = (f"--config={tmp_path / 'fleet.yaml'}", "--scheduler-name=fleet", "--no-leader-election")
    config = f"--kubeconfig={cluster.kubeconfig(tmp_path / 'karmada')}"
    process = SchedulerProcess(tmp_path / "fleet", arguments=(config, *arguments), subcommand="fleet")
    try:
        process.start_ready()
        karmada.wait_placed(karmada.add_binding(replicas=15), {member: 10, "without-estimator": 5})
    finally:
        process.kill()
        print(process.log()[-4000:])
