"""An optional API that the API server names, and cannot serve, holds up nobody's start."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from tests.integration.api import ApiRefusal
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.control_plane import assets
from tests.integration.front import Exchange, Front, Reply
from tests.integration.objects import node, pod
from tests.integration.process import SchedulerProcess

GROUP = "scheduling.x-k8s.io"


def _is_asked(exchange: Exchange) -> bool:
    return GROUP in (exchange.group, *exchange.resource.split("/"))


def begins_without_it(process: SchedulerProcess, cluster: Cluster, *, code: int) -> None:
    """See that pods are bound, and that the log has the reason in one line."""
    cluster.add_nodes(node("n1"))
    process.start_serving()
    eventually(lambda: "the first lists are not complete: podgroups" in process.get("/readyz?verbose")[1])
    eventually(lambda: process.get("/readyz")[0] == 200, else_=process.log)
    cluster.add_pods(pod("a"))
    cluster.wait_bound("a")
    told = [entry for entry in process.log_entries() if GROUP in str((entry["message"], entry.get("resource")))]
    first, last = told
    assert first["message"].startswith(f"podgroups.{GROUP}: {code} ")
    assert last["message"] == "going on without an optional API; it is tried again"
    assert (last["resource"], last["level"]) == (f"podgroups.{GROUP}", "warning")
    assert last["why"].startswith(f"{code} ")


@pytest.mark.parametrize("code", [405, 503])
def test_one_that_cannot_be_listed_counts_as_absent_after_a_while(
    code: int, cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    front.plan = lambda exchange: Reply(code, "Strange") if _is_asked(exchange) else None
    begins_without_it(scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")), cluster, code=code)


@pytest.fixture(params=[405, 415, 503])
def extension(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[int]:
    """An extension API server that says which resources it has, and answers everything else with an error."""
    if assets() is None:
        pytest.skip("only a real API server passes requests on: KUBEBUILDER_ASSETS names none")
    resources = (
        b'{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1alpha1","resources":[{"name":"podgroups",'
        b'"singularName":"","namespaced":true,"kind":"PodGroup","verbs":["list","watch"]}]}' % GROUP.encode()
    )

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_discovery = self.path.partition("?")[0].rstrip("/").endswith("v1alpha1")
            body = resources if is_discovery else b"the extension is broken"
            self.send_response(200 if is_discovery else request.param)
            self.send_header("Content-Type", "application/json" if is_discovery else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(tls)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "extension"}}
    cluster.api.create("services", service | {"spec": {"type": "ExternalName", "externalName": "localhost"}})
    where = {"namespace": "default", "name": "extension", "port": server.server_address[1]}
    spec = {"group": GROUP, "version": "v1alpha1", "service": where, "insecureSkipTLSVerify": True}
    spec |= {"groupPriorityMinimum": 1000, "versionPriority": 10}
    name = f"v1alpha1.{GROUP}"
    kind = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name}}
    cluster.api.create("apiservices", kind | {"spec": spec})
    try:
        eventually(lambda: cluster.condition(name, "Available", plural="apiservices").get("status") == "True")
        yield request.param
    finally:
        cluster.api.delete("apiservices", name)
        cluster.api.delete("services", "extension")
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_broken_extension_of_the_api_server_holds_up_nobody(
    extension: int, cluster: Cluster, scheduler: StartScheduler
) -> None:
    begins_without_it(scheduler(), cluster, code=extension)


@pytest.mark.skipif(assets() is None, reason="only a real API server passes requests on")
def test_an_extension_that_is_not_there_holds_up_nobody(cluster: Cluster, scheduler: StartScheduler) -> None:
    name = f"v1alpha1.{GROUP}"
    where = {"namespace": "default", "name": "nobody", "port": 443}
    spec = {"group": GROUP, "version": "v1alpha1", "service": where, "insecureSkipTLSVerify": True}
    spec |= {"groupPriorityMinimum": 1000, "versionPriority": 10}
    kind = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name}}
    cluster.api.create("apiservices", kind | {"spec": spec})
    try:
        eventually(lambda: _is_unavailable(cluster))
        begins_without_it(scheduler(), cluster, code=503)
    finally:
        cluster.api.delete("apiservices", name)


def _is_unavailable(cluster: Cluster) -> bool:
    with contextlib.suppress(ApiRefusal):
        cluster.api.request("GET", f"/apis/{GROUP}/v1alpha1/podgroups")
        return False
    return cluster.condition(f"v1alpha1.{GROUP}", "Available", plural="apiservices").get("status") == "False"
