"""Estimators beside Karmada's: its scheduler asks ours, and our decision maker asks its; all with mutual TLS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trustme
import yaml

from kube_policy_scheduler.adapters.grpc.grpc_tls import TlsFiles
from kube_policy_scheduler.daemon.configuration.settings import API_VERSION, KIND
from kube_policy_scheduler.fleet.karmada.triggers import DEFAULT_SCHEDULER
from tests.daemon.test_estimator import ANTI_AFFINITY, HOSTNAME, files
from tests.integration.cluster import Cluster
from tests.integration.conftest import StartScheduler
from tests.integration.karmada import NAMESPACE, Karmada
from tests.integration.karmada_programs import free_port, karmada_scheduler, program, running
from tests.integration.objects import node
from tests.integration.process import SchedulerProcess

MEMBER, ADDRESS = "member1", "127.0.0.1"


@pytest.fixture(autouse=True)
def programs() -> None:
    """Skip the test before anything is started."""
    program("karmada-scheduler")
    program("karmada-scheduler-estimator")


@pytest.fixture
def karmada(cluster: Cluster) -> Karmada:
    """A control plane whose API server is that of its only member, too: two nodes of ten cores."""
    found = Karmada(cluster.api)
    cluster.add_nodes(*(node(name, cpu="10", labels={HOSTNAME: name}) for name in ("a", "b")))
    return found


@pytest.fixture
def certificates(tmp_path: Path) -> tuple[TlsFiles, TlsFiles]:
    """The files of a server, and those of its client."""
    authority = trustme.CA()
    return files(tmp_path / "server", authority, authority), files(tmp_path / "client", authority, authority)


def test_karmadas_scheduler_asks_our_estimator(
    cluster: Cluster,
    karmada: Karmada,
    scheduler: StartScheduler,
    certificates: tuple[TlsFiles, TlsFiles],
    tmp_path: Path,
) -> None:
    karmada.add_cluster(MEMBER, cpu=60)
    (server, client), port = certificates, free_port()
    estimator = {
        "clusterName": MEMBER,
        "host": ADDRESS,
        "port": port,
        "certificateFile": str(server.certificate),
        "keyFile": str(server.key),
        "clientCaFile": str(server.authority),
    }
    config = {"apiVersion": API_VERSION, "kind": KIND, "mode": "estimator", "estimator": estimator}
    (tmp_path / "estimator.yaml").write_text(yaml.safe_dump(config))
    scheduler(f"--config={tmp_path / 'estimator.yaml'}").start_ready()
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"karmada-scheduler-estimator-{MEMBER}", "namespace": "karmada-system"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port, "targetPort": port}]},
    }
    cluster.ensure("services", service)
    arguments = (
        "--enable-scheduler-estimator",
        f"--scheduler-estimator-port={port}",
        f"--scheduler-estimator-ca-file={client.authority}",
        f"--scheduler-estimator-cert-file={client.certificate}",
        f"--scheduler-estimator-key-file={client.key}",
    )
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web"}], "affinity": ANTI_AFFINITY},
    }
    cluster.api.create(
        "deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        },
    )
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    with karmada_scheduler(kubeconfig, *arguments, log=tmp_path / "karmada-scheduler.log"):
        alone = karmada.add_binding("alone", replicas=30, schedulerName=DEFAULT_SCHEDULER)
        assert "available replicas 20 are" in karmada.wait_reason(alone, "Unschedulable")["message"]
        web = karmada.add_binding("web", replicas=3, schedulerName=DEFAULT_SCHEDULER)
        assert "available replicas 2 are" in karmada.wait_reason(web, "Unschedulable")["message"]
        karmada.change(web, {"replicas": 2})
        karmada.wait_placed(web, {MEMBER: 2})


def test_our_decision_maker_asks_karmadas_estimator(
    cluster: Cluster, karmada: Karmada, certificates: tuple[TlsFiles, TlsFiles], tmp_path: Path
) -> None:
    karmada.add_cluster(ADDRESS, cpu=60)  # its name is where its estimator is
    (server, client), port = certificates, free_port()
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    command = (
        str(program("karmada-scheduler-estimator")),
        f"--kubeconfig={kubeconfig}",
        f"--cluster-name={ADDRESS}",
        f"--server-port={port}",
        f"--grpc-auth-cert-file={server.certificate}",
        f"--grpc-auth-key-file={server.key}",
        f"--grpc-client-ca-file={server.authority}",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address=127.0.0.1:{free_port()}",
    )
    estimators = {
        "address": f"{{cluster}}:{port}",
        "caFile": str(client.authority),
        "certificateFile": str(client.certificate),
        "keyFile": str(client.key),
    }
    config = {"apiVersion": API_VERSION, "kind": KIND, "fleet": {"estimators": estimators}}
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(config))
    arguments = (
        f"--kubeconfig={kubeconfig}",
        f"--config={tmp_path / 'fleet.yaml'}",
        "--scheduler-name=fleet",
        "--no-leader-election",
    )
    with running(command, log=tmp_path / "karmada-scheduler-estimator.log"):
        process = SchedulerProcess(tmp_path / "fleet", arguments=arguments, subcommand="fleet")
        try:
            process.start_ready()
            web = karmada.add_binding(replicas=30)
            said = karmada.wait_reason(web, "Unschedulable")["message"]
            shown = json.loads(process.get(f"/debug/bindings?namespace={NAMESPACE}&name={web}")[1])
            assert shown["clusters"][ADDRESS]["room_by"] == "estimator", said
            assert "available replicas 20 are" in said
            karmada.change(web, {"replicas": 20})
            karmada.wait_placed(web, {ADDRESS: 20})
        finally:
            process.kill()
            print(process.log()[-4000:])
