"""The real kube-scheduler asks us: filters, scores, evictions and bindings by policy, its own rules beside."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import DEPLOY
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.kube_scheduler import kube_scheduler, program
from tests.integration.objects import node, pod
from tests.integration.process import SchedulerProcess
from tests.integration.recorder import Recorder

DEFAULT = "default-scheduler"
RULES = """
policy apps
for pods where pod.label.app == "web"
filter node.label.disk == "ssd"
score 10 if node.label.speed == "fast"
preempt if pod.priority >= 100 evict where victim.priority < 50
"""


@contextmanager
def asked(
    cluster: Cluster,
    scheduler: StartScheduler,
    folder: Path,
    **extender: Any,
) -> Iterator[tuple[SchedulerProcess, Recorder]]:
    """Run kube-scheduler with our service as its extender, and a recorder between the two."""
    program()
    process = scheduler("--mode=extender").start_ready()
    verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "weight": 200}
    with Recorder(f"http://{process.address}") as recorder:
        told = {"urlPrefix": f"{recorder.url}/extender", "httpTimeout": "5s", **verbs, **extender}
        config = cluster.kubeconfig(folder / "kube-scheduler.kubeconfig")
        with kube_scheduler(config, log=folder / "kube-scheduler.log", extender=told):
            yield process, recorder
    keep(recorder, folder)


def test_as_the_overlay_has_it_over_tls_with_its_own_certificate(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    program()
    overlay = DEPLOY / "overlays" / "extender"
    policies.update({"default.policy": RULES})
    cluster.add_nodes(node("slow", labels={"disk": "ssd"}), node("fast", labels={"disk": "ssd", "speed": "fast"}))
    config = yaml.safe_load((overlay / "config.yaml").read_text())
    config["http"]["tls"]["clientCaFile"] = str(cluster.endpoint.ca_file)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    process = scheduler(f"--config={tmp_path / 'config.yaml'}", "--http-secure").start_serving()
    (told,) = yaml.safe_load((overlay / "kube-scheduler.yaml").read_text())["extenders"]
    certificate, key = cluster.certificate("system:kube-scheduler")
    told["urlPrefix"] = f"https://{process.address}/extender"
    told["tlsConfig"] |= {"certFile": str(certificate), "keyFile": str(key)}
    kubeconfig = cluster.kubeconfig(tmp_path / "kube-scheduler.kubeconfig")
    with kube_scheduler(kubeconfig, log=tmp_path / "kube-scheduler.log", extender=told):
        cluster.add_pods(pod("web", scheduler=DEFAULT, labels={"app": "web"}))
        assert cluster.wait_bound("web") == {"web": "fast"}, process.log()


def keep(recorder: Recorder, folder: Path) -> None:
    """Write the requests where EXTENDER_RECORDINGS says, to renew those of tests/daemon/extender_requests."""
    target = os.environ.get("EXTENDER_RECORDINGS")
    for number, (path, body, _, answer) in enumerate(recorder.kept if target else ()):
        name = f"{folder.name[-20:]}-{number:02}-{path.rpartition('/')[2]}"
        for end, content in (("request", body), ("answer", answer)):
            text = json.dumps(json.loads(content), indent=1, sort_keys=True)
            Path(str(target), f"{name}.{end}.json").write_text(text + "\n")


@pytest.mark.parametrize("cache", [True, False], ids=["names", "whole nodes"])
def test_the_policy_filters_and_prefers_and_kubernetes_rules_stay(
    cache: bool,
    cluster: Cluster,
    scheduler: StartScheduler,
    policies: ConfigMapVolume,
    tmp_path: Path,
) -> None:
    policies.update({"default.policy": RULES})
    ssd, fast = {"disk": "ssd"}, {"disk": "ssd", "speed": "fast"}
    cluster.add_nodes(
        node("slow", labels=ssd),
        node("fast", labels=fast, cpu="1"),
        node("fastest-but-hdd", labels={"speed": "fast"}),
    )
    with asked(cluster, scheduler, tmp_path, nodeCacheCapable=cache) as (process, recorder):
        cluster.add_pods(pod("first", scheduler=DEFAULT, labels={"app": "web"}, cpu="800m"))
        assert cluster.wait_bound("first") == {"first": "fast"}
        cluster.add_pods(pod("second", scheduler=DEFAULT, labels={"app": "web"}, cpu="800m"))
        assert cluster.wait_bound("second") == {"second": "slow"}, "kube-scheduler's own rule: no cpu is left on fast"
        cluster.add_pods(pod("other", scheduler=DEFAULT, nodeSelector={"kubernetes.io/hostname": "fastest-but-hdd"}))
        assert cluster.wait_bound("other") == {"other": "fastest-but-hdd"}, "no policy governs it"
        cluster.add_pods(
            pod(
                "never",
                scheduler=DEFAULT,
                labels={"app": "web"},
                nodeSelector={"kubernetes.io/hostname": "fastest-but-hdd"},
            )
        )
        message = eventually(lambda: cluster.condition("never").get("message", ""))
        assert 'node.label.disk == "ssd"' in message
        assert recorder.of("filter")
        assert recorder.of("prioritize")
        metrics = process.metrics()
        assert metrics['policy_scheduler_extender_requests_total{result="narrowed",verb="filter"}'] >= 1
        refused = {name: value for name, value in metrics.items() if "extender_refusals_total" in name}
        assert any('policy="apps"' in name and value >= 1 for name, value in refused.items()), refused
    sent = json.loads(recorder.of("filter")[0][0])
    assert (sent["NodeNames"] is not None) is cache
    assert (sent["Nodes"] is not None) is not cache


def test_a_binding_goes_through_the_policy_once_more(
    cluster: Cluster,
    scheduler: StartScheduler,
    policies: ConfigMapVolume,
    tmp_path: Path,
) -> None:
    policies.update({"default.policy": "policy apps\nlimit count() by pod.label.app to 2\n"})
    cluster.add_nodes(node("n1"), node("n2"))
    with asked(cluster, scheduler, tmp_path, nodeCacheCapable=True, bindVerb="bind") as (
        process,
        recorder,
    ):
        cluster.add_pods(*(pod(f"p{number}", scheduler=DEFAULT, labels={"app": "web"}) for number in range(12)))
        eventually(lambda: sum(1 for placed in cluster.placements().values() if placed) == 2)
        eventually(lambda: len([p for p in cluster.pods() if cluster.condition(p["metadata"]["name"])]) == 12)
        assert sum(1 for placed in cluster.placements().values() if placed) == 2
        assert process.metrics()['policy_scheduler_extender_requests_total{result="bound",verb="bind"}'] == 2
        bodies = [json.loads(body) for body, _ in recorder.of("bind")]
        assert all(body["PodName"] and body["PodUID"] and body["Node"] in ("n1", "n2") for body in bodies)


@pytest.mark.parametrize("cache", [True, False], ids=["names", "whole nodes"])
def test_only_victims_that_the_policy_lets_go_are_evicted(
    cache: bool,
    cluster: Cluster,
    scheduler: StartScheduler,
    policies: ConfigMapVolume,
    tmp_path: Path,
) -> None:
    policies.update({"default.policy": RULES})
    for name, value in (("low", 10), ("middle", 60), ("high", 100)):
        cluster.ensure(
            "priorityclasses",
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value},
        )
    ssd = {"disk": "ssd"}
    cluster.add_nodes(node("a", labels=ssd, cpu="1"), node("b", labels=ssd, cpu="1"))
    cluster.add_pods(
        pod(
            "spared",
            scheduler=DEFAULT,
            cpu="900m",
            priorityClassName="middle",
            nodeSelector={"kubernetes.io/hostname": "a"},
        ),
        pod(
            "victim",
            scheduler=DEFAULT,
            cpu="900m",
            priorityClassName="low",
            nodeSelector={"kubernetes.io/hostname": "b"},
        ),
    )
    with asked(cluster, scheduler, tmp_path, nodeCacheCapable=cache) as (_, recorder):
        cluster.wait_bound("spared", "victim")
        cluster.add_pods(pod("urgent", scheduler=DEFAULT, cpu="900m", priorityClassName="high", labels={"app": "web"}))
        eventually(lambda: cluster.placements().get("urgent") == "b")
        assert cluster.placements()["spared"] == "a"
        (body, answer), *_ = recorder.of("preempt")
        sent = json.loads(body)
        assert set(sent["NodeNameToMetaVictims" if cache else "NodeNameToVictims"]) == {"a", "b"}
        assert set(json.loads(answer)["NodeNameToMetaVictims"]) == {"b"}
