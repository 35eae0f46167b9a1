"""Each form of the language in each tool: the same small cluster, one policy each, and what the tools must say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cli.main import run

Json = dict[str, Any]
NOW = "2026-11-22T12:00:00Z"
TAKEN = {"annotations": {"policyctl/taken-at": NOW}}
LONG_AGO = "2026-11-01T00:00:00Z"


def node(name: str, zone: str, *, cpu: int = 8, lifecycle: str = "spot", kernel: str = "5.15.0", **more: str) -> Json:
    labels = {"topology.kubernetes.io/zone": zone, "lifecycle": lifecycle, "max-cpu": "6500m", "until": LONG_AGO}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"u-{name}", "labels": labels, "creationTimestamp": LONG_AGO},
        "spec": {"providerID": f"{more.get('provider', 'aws')}:///x/{name}"},
        "status": {
            "allocatable": {"cpu": str(cpu), "memory": "32Gi", "pods": "110"},
            "capacity": {"cpu": str(cpu + 1), "memory": "33Gi", "pods": "110"},
            "nodeInfo": {
                "kernelVersion": kernel,
                "kubeletVersion": "v1.36.2",
                "containerRuntimeVersion": more.get("runtime", "containerd://2.1.4"),
            },
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": more.get("ready_since", LONG_AGO)}
            ],
        },
    }


def pod(name: str, on: str = "", *, cpu: str = "1", ready: bool = True, priority: int = 0, **labels: str) -> Json:
    metadata = {"name": name, "namespace": "shop", "uid": f"p-{name}", "labels": {"app": "web", **labels}}
    made: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | {"creationTimestamp": "2026-11-22T11:30:00Z", "annotations": {"budget": "4500m"}},
        "spec": {
            "schedulerName": "policy-scheduler",
            "priority": priority,
            "containers": [{"name": "c", "image": "reg/web:1", "resources": {"requests": {"cpu": cpu}}}],
        },
    }
    if on:
        started = LONG_AGO if ready else "2026-11-22T11:58:00Z"
        made["spec"]["nodeName"] = on
        made["status"] = {
            "phase": "Running",
            "startTime": started,
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [
                {
                    "name": "c",
                    "ready": ready,
                    "started": ready,
                    "restartCount": 0 if ready else 5,
                    "state": {"running": {}},
                }
            ],
        }
    return made


CLUSTER = [
    node("a", "x"),
    node("b", "y", lifecycle="on-demand", kernel="5.4.0"),
    node("c", "y", cpu=4, provider="gce", ready_since="2026-11-22T11:59:00Z", runtime="cri-o://1.30.0"),
    pod("old", "a", cpu="2"),
    pod("new", "c", ready=False),
    pod("web", job="train", role="worker", tenant="red", needs="2"),
    pod("big", cpu="20", priority=10),
    {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "b"},
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "500m"}],
            }
        ],
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "disks"},
        "spec": {"storageCapacity": True},
    },
    {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "disks"},
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "y", "namespace": "kube-system"},
        "storageClassName": "fast",
        "capacity": "100Gi",
        "nodeTopology": {"matchLabels": {"topology.kubernetes.io/zone": "y"}},
    },
]
METRICS = "grid_load: 95\nspent: {red: 150, blue: 1}\ncpu_load: {a: 90, b: 10, c: 90}\n"


@dataclass(frozen=True)
class Form:
    """One policy, and parts of what the tools say about it."""

    text: str
    why: str
    """Of the pod `web`: `goes to NODE` or `fits none`, with what else is said."""
    says: dict[str, str] = field(default_factory=dict)
    """By tool."""
    hides: bool = True
    """Whether names can be hidden without changing the decision."""
    is_captured: bool = True
    """Whether a test of one decision can express it; otherwise `capture` says why not, and writes nothing."""


FORMS = {
    "ready": Form('filter any(p.ready for p in node.pods where p.label.app == "web") else "x"', "goes to a"),
    "started": Form("filter count(p in node.pods where not p.started) < 1", "2 of 3 nodes fit"),
    "restarts": Form("filter count(p in node.pods where p.restarts > 3) < 1", "2 of 3 nodes fit"),
    "running": Form("filter not any(p.running < 10min for p in node.pods)", "2 of 3 nodes fit"),
    "victim": Form("preempt if pod.priority > 5 evict where victim.running > 10min", "3 of 3 nodes fit"),
    "quantity": Form(
        "filter node.free.cpu > (quantity(pod.annotation.budget) ?? 1core)", "2 of 3 nodes fit", hides=False
    ),
    "product": Form("filter node.free.cpu >= 2core * (number(pod.label.needs) ?? 1)", "2 of 3 nodes fit"),
    "time": Form(
        'filter (time(node.label["until"]) ?? 0s) > now() + 30min',
        'node.label["until"] is "2026-11-01T00:00:00Z", now() is 2026-11-22T12:00:00Z',
        {"doctor": "node label until"},
    ),
    "duration": Form("score 50 if pod.waiting > 20min", "pod.waiting = 30min"),
    "version": Form('filter (version(node.kernel) >= version("5.10")) ?? false', "2 of 3 nodes fit"),
    "cluster metric": Form(
        'metric grid = promql("grid_load") for cluster default 0\nhold if grid > 90 else "grid is full"',
        "holds it: grid is full",
        {"doctor": "holds each of", "simulate": "rejected: 3 by grid is full", "impact": "holds it back"},
    ),
    "tenant metric": Form(
        'metric spent = promql("spent") by tenant as pod.label.tenant\nrequire (spent ?? 0) < 100 else "used up"',
        "rejected as a whole: used up",
        {"doctor": "rejects 1 of", "impact": "becomes unschedulable"},
    ),
    "node metric": Form(
        'filter (promql("cpu_load") ?? 100) < 50', "goes to b", {"simulate": "rejected: 1 by NodeResourcesFit"}
    ),
    "provider": Form('filter node.provider == "aws" and pod.runtime_class is missing', "2 of 3 nodes fit"),
    "previous node": Form(
        "score 50 if node.name == pod.previous_node",
        "3 of 3 nodes fit",
        {"doctor": "only the running scheduler knows on which node a pod ran before"},
    ),
    "capacity": Form(
        'filter node.container_runtime matches "containerd.*" and node.capacity.cpu > 8core', "2 of 3 nodes fit"
    ),
    "condition age": Form('filter (node.condition_age.Ready ?? 1h) > 5min else "flaps"', "2 of 3 nodes fit"),
    "all": Form('require all(i matches "reg/.*" for i in pod.images)', "3 of 3 nodes fit", hides=False),
    "headroom": Form('require sum(n.free.cpu for n in cluster.nodes) > 100core else "none left"', "none left"),
    "distinct": Form("filter count(distinct p.label.app for p in node.pods) < 1", "goes to b"),
    "limit of": Form(
        'limit count() to 2 of pods where pod.label.app == "web"', "the cluster has 2 of 2, and this pod adds 1"
    ),
    "limit over": Form(
        'limit count() to 1 over lifecycle of pods where pod.label.app == "web"',
        "goes to b",
        {"doctor": "node label lifecycle: on 3 of 3 nodes"},
    ),
    "aging": Form("order by pod.priority + min(pod.waiting / 10min, 5) desc", "3 of 3 nodes fit"),
    "strict": Form(
        "order by pod.priority desc strict",
        "It waits until shop/big has a node",
        {"simulate": "strict order: the first pod has no node", "capture": "write a case with `queue`"},
        is_captured=False,
    ),
    "hold if": Form(
        'hold if pod.waiting < 2h if pod.label.job == "train" else "collected"', "collected", {"doctor": "holds 1 of"}
    ),
    "target": Form(
        "spread by pod.label.app over lifecycle target spot 50%, on-demand 30%, reserved 20%",
        "goes to b",
        {"doctor": "no node has the value `reserved`"},
    ),
    "roles": Form(
        "gang by pod.label.job size 2 with 1 of role=driver, 1 of role=worker if pod.label.job",
        "0 of 1 with role=driver",
        {"simulate": "gang: too few pods", "doctor": "pod label role"},
    ),
    "numa": Form("filter fits_numa(cpu) ?? false", "1 of 3 nodes fit"),
    "volume room": Form('filter (volume_room("fast") > 10Gi) ?? false', "2 of 3 nodes fit"),
    "language": Form("language 2\nspread by pod.label.app over zone max skew 1", "3 of 3 nodes fit"),
    "scores": Form(
        "use kubernetes scores weight 2 without ImageLocality with NodeResourcesFit weight 3", "3 of 3 nodes fit"
    ),
}


@pytest.fixture
def tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("cluster.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "metadata": TAKEN, "items": CLUSTER})
    )
    Path("metrics.yaml").write_text(METRICS)
    Path("none.policy").write_text("score 1\n")
    pods = "pods:\n- {name: late, namespace: shop, cpu: 100m, count: 1, labels: {app: web}}\n"
    Path("pods.yaml").write_text(pods)

    def call(name: str, *arguments: str) -> tuple[int, str]:
        code = run([name, *arguments])
        said = capsys.readouterr()
        text = said.out + said.err
        assert "Traceback" not in text
        return code, " ".join(text.split())

    return call


@pytest.mark.parametrize("name", FORMS)
def test_each_tool_understands_each_form(name: str, tool: Callable[..., tuple[int, str]]) -> None:
    form = FORMS[name]
    Path("one.policy").write_text(f"{form.text}\n")
    metrics = ["--metrics", "metrics.yaml"] if "promql" in form.text else []
    decided = ["--policies", "one.policy", "--cluster", "cluster.json", *metrics]
    cluster = ["--cluster", "cluster.json", *metrics]
    said = {
        "why": tool("why", "web", *decided),
        "doctor": tool("doctor", "--policies", "one.policy", *cluster),
        "drift": tool("drift", *decided),
        "impact": tool("impact", "none.policy", "one.policy", *cluster, "--max-unschedulable", "9"),
        "simulate": tool("simulate", "one.policy", *cluster, "--pods", "pods.yaml"),
        "capture": tool("capture", "web", *decided, "-o", "web.test.yaml"),
        "replay": tool("test", "web.test.yaml"),
    }
    assert form.why in said["why"][1]
    for each, part in form.says.items():
        assert part in said[each][1], each
    if not form.is_captured:
        assert said.pop("capture")[0] == said.pop("replay")[0] == 2
    assert {each: code for each, (code, _) in said.items() if code > 1} == {}
    if not form.is_captured:
        return
    assert said["replay"][0] == 0, said["replay"][1]
    code, text = tool("capture", "web", *decided, "-o", "hidden.test.yaml", "--anonymise")
    assert (code == 0) is form.hides, text
    if form.hides:
        assert tool("test", "hidden.test.yaml")[0] == 0
