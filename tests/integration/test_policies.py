"""Policies as the kubelet mounts them: edited while pods are scheduled, broken, and repaired."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.kubectl import kubectl
from tests.integration.objects import ZONE, Json, node, pod
from tests.integration.process import SchedulerProcess

BROKEN = "filter node.ready\nscore 100 if label disk=ssd\nfilter node.redy and fits(cpu, mem)\n"
MAP: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policies", "namespace": "default"}}
SUCCESSFUL = "policy_scheduler_policy_last_reload_successful"


def only(zone: str) -> dict[str, str]:
    """Policies that send every pod to one zone."""
    return {"zone.policy": f'filter label {ZONE}={zone} else "not in zone {zone}"\n'}


@pytest.fixture
def zones(cluster: Cluster) -> Cluster:
    """A cluster with a node in each of two zones."""
    cluster.add_nodes(node("in-a", labels={ZONE: "a"}), node("in-b", labels={ZONE: "b"}))
    return cluster


def settle(process: SchedulerProcess, *, generation: int) -> None:
    eventually(lambda: process.policies()["generation"] == generation)


@pytest.mark.parametrize("links_first", [True, False], ids=["links first", "links last"])
def test_an_edited_config_map_decides_the_next_pod(
    links_first: bool, zones: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    volume = ConfigMapVolume(tmp_path / "mounted", links_first=links_first)
    volume.update(only("a"))
    process = scheduler(f"--policies={volume.path}").start_ready()
    zones.add_pods(pod("before"))
    assert zones.wait_bound("before") == {"before": "in-a"}
    volume.update(only("b"))
    settle(process, generation=2)
    zones.add_pods(pod("after"))
    assert zones.wait_bound("after") == {"after": "in-b"}
    status = process.policies()
    assert status["accepted"]
    assert status["active"] == status["candidate"]


def test_pods_that_wait_are_tried_under_the_new_policies_at_once(
    zones: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    policies.update(only("nowhere"))
    scheduler().start_ready()
    zones.add_pods(pod("waits"), pod("others", scheduler="batch-scheduler"))
    eventually(lambda: "2 not in zone nowhere" in zones.condition("waits").get("message", ""))
    (event,) = eventually(lambda: zones.events("waits", reason="FailedScheduling"))
    assert event["note"].startswith("0/2 nodes are available: 2 not in zone nowhere.")
    policies.update(only("b"))
    assert zones.wait_bound("waits") == {"waits": "in-b"}
    assert zones.placements()["others"] == ""
    policies.update({"batch.policy": "scheduler batch-scheduler\nfilter node.ready\n"})
    zones.wait_bound("others")


def test_a_rejected_pod_has_the_reason_of_the_policy(
    zones: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    policies.update({"a.policy": 'require pod.label.tenant else "pod missing tenant label"\n'})
    scheduler().start_ready()
    zones.add_pods(pod("named", labels={"tenant": "red"}), pod("nameless"))
    zones.wait_bound("named")
    eventually(lambda: "pod missing tenant label" in zones.condition("nameless").get("message", ""))
    zones.api.patch("pods", "nameless", {"metadata": {"labels": {"tenant": "blue"}}})
    zones.wait_bound("nameless")


def configured(tmp_path: Path) -> str:
    """Name the ConfigMap behind the volume, as the deployed configuration does."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
        "policies: {configMap: default/policies}\n"
    )
    return f"--config={path}"


@pytest.mark.needs("kubectl")
def test_a_broken_edit_changes_nothing_and_is_seen_everywhere(
    zones: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    zones.api.create("configmaps", MAP)
    policies.update(only("a"))
    process = scheduler(configured(tmp_path)).start_ready()
    before = process.policies()
    assert process.metrics()[SUCCESSFUL] == 1
    policies.update(only("b") | {"broken.policy": BROKEN})
    eventually(lambda: not process.policies()["accepted"])

    zones.add_pods(pod("web"))
    assert zones.wait_bound("web") == {"web": "in-a"}, "not even the good half of the edit decides"
    status = process.policies()
    assert (status["active"], status["generation"]) == (before["active"], before["generation"])
    assert status["candidate"] != before["active"]
    assert status["problems"][0].startswith("broken.policy:3:13: error[")
    assert process.metrics()[SUCCESSFUL] == 0
    assert process.get("/readyz")[0] == 200, "it still does its work"
    errors = [entry["message"] for entry in process.log_entries() if entry["level"] == "error"]
    assert any(text.startswith("broken.policy:3:13: error[") for text in errors)
    (event,) = eventually(lambda: zones.events("policies", reason="PoliciesRefused"))
    assert event["type"] == "Warning"
    assert "broken.policy:3:13: error[" in event["note"]
    assert "stays in use" in event["note"]
    described = kubectl(zones.kubeconfig(tmp_path / "kubectl"), "describe", "configmap", "policies")
    assert "PoliciesRefused" in described
    assert "broken.policy:3:13" in described

    policies.update(only("b"))
    settle(process, generation=before["generation"] + 1)
    zones.add_pods(pod("next"))
    assert zones.wait_bound("next") == {"next": "in-b"}
    assert process.metrics()[SUCCESSFUL] == 1


def test_an_extender_reports_a_broken_edit_as_a_scheduler_does(
    zones: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    zones.api.create("configmaps", MAP)
    policies.update(only("a"))
    process = scheduler(configured(tmp_path), "--mode=extender").start_ready()
    policies.update({"broken.policy": BROKEN})
    eventually(lambda: not process.policies()["accepted"])
    (event,) = eventually(lambda: zones.events("policies", reason="PoliciesRefused"))
    assert "broken.policy:3:13: error[" in event["note"]


BEGINNINGS: dict[str, dict[str, str | bytes]] = {
    "a broken set": {"a.policy": BROKEN},
    "no policy at all": {"notes.txt": "nothing here"},
    "a file that is no text": {"a.policy": b"\xff\xfe"},
    "a name that is no text": {"caf\udce9.policy": "filter node.ready\n"},
}
SAID = {
    "a broken set": "a.policy:3:13: error[",
    "no policy at all": "no .policy",
    "a file that is no text": "a.policy",
    "a name that is no text": "caf\\xe9.policy is not UTF-8",
}


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_what_begins_with(beginning: str, zones: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume) -> None:
    policies.update(BEGINNINGS[beginning])
    zones.add_pods(pod("waits"))
    process = scheduler().start_serving()
    eventually(lambda: not process.policies()["accepted"] and process.policies()["problems"])
    eventually(lambda: "caches are synced" in process.log())
    code, text = process.get("/readyz")
    assert code == 500
    assert "[-]policies failed" in text
    assert SAID[beginning] in text
    assert process.get("/livez")[0] == 200
    assert process.metrics()[SUCCESSFUL] == 0
    assert zones.placements() == {"waits": ""}
    policies.update(only("b"))
    assert zones.wait_bound("waits") == {"waits": "in-b"}
    assert process.get("/readyz")[0] == 200


def test_a_file_name_that_is_not_text_is_an_error_everywhere_and_stops_nothing(
    zones: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    zones.api.create("configmaps", MAP)
    policies.update(only("a"))
    process = scheduler(configured(tmp_path)).start_ready()
    policies.update({**only("b"), "caf\udce9.policy": "filter node.ready\n"})
    eventually(lambda: not process.policies()["accepted"])
    said = "caf\\xe9.policy is not UTF-8: rename the file"
    assert said in process.policies()["problems"][0]
    assert process.metrics()[SUCCESSFUL] == 0
    assert any(said in entry["message"] for entry in process.log_entries() if entry["level"] == "error")
    (event,) = eventually(lambda: zones.events("policies", reason="PoliciesRefused"))
    assert said in event["note"]
    zones.add_pods(pod("meanwhile"))
    assert zones.wait_bound("meanwhile") == {"meanwhile": "in-a"}
    policies.update(only("b"))
    settle(process, generation=2)
    assert process.metrics()[SUCCESSFUL] == 1


def test_policies_that_come_later_than_the_scheduler_are_waited_for(
    zones: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    zones.add_pods(pod("waits"))
    path, config = tmp_path / "later", tmp_path / "config.yaml"
    head = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
    config.write_text(f"{head}policies: {{path: {path}}}\n")
    kubeconfig = f"--kubeconfig={zones.kubeconfig(tmp_path / 'kubeconfig')}"
    given = (f"--config={config}", kubeconfig, "--no-leader-election")
    process = scheduler(*given, defaults=False).start_serving()
    eventually(lambda: "does not exist" in process.get("/readyz")[1])
    ConfigMapVolume(path).update(only("a"))
    assert zones.wait_bound("waits") == {"waits": "in-a"}


def test_under_load_every_pod_is_decided_by_one_whole_generation(
    zones: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    """Two files of one edit, one for the zone and one for the node's size, never mix."""
    for zone, size in (("a", "large"), ("b", "large"), ("a", "small"), ("b", "small")):
        zones.add_nodes(node(f"{zone}-{size}", cpu="64", labels={ZONE: zone, "size": size}))

    def generation(turn: int) -> dict[str, str]:
        zone, size = ("a", "large") if turn % 2 else ("b", "small")
        return {
            "zone.policy": f'priority 10\nuse "size.policy"\nfilter label {ZONE}={zone}\n',
            "size.policy": f"filter label size={size}\n",
        }

    policies.update(generation(0))
    process = scheduler().start_ready()
    names = [f"p{i}" for i in range(60)]
    for i, name in enumerate(names):
        if i % 6 == 0:
            policies.update(generation(i // 6))
        zones.add_pods(pod(name, cpu="10m"))
    placed = zones.wait_bound(*names)
    assert set(placed.values()) <= {"a-large", "b-small"}
    assert process.policies()["accepted"]


WAITING = """hold if pod.label.later as later else "not today"
gang by pod.label.job size number(pod.label.size) within 10min if pod.label.job
"""
RULE = "policy waiting: gang by pod.label.job size number(pod.label.size) within 10min if pod.label.job"


def test_pods_that_are_held_or_wait_for_their_gang_have_one_event_that_names_the_rule(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    cluster.add_nodes(node("n1", cpu="1"))
    policies.update({"waiting.policy": WAITING})
    scheduler().start_ready()
    short, pair = {"job": "short", "size": "3"}, {"job": "pair", "size": "2"}
    cluster.add_pods(pod("held", labels={"later": "1"}), pod("short-0", labels=short), pod("short-1", labels=short))
    cluster.add_pods(pod("pair-0", labels=pair, cpu="600m"))
    eventually(lambda: cluster.events("short-1"))
    cluster.add_pods(pod("pair-1", labels=pair, cpu="600m"))
    wanted = {
        "held": [("SchedulingGated", "not today. Held by policy waiting, clause `later`.")],
        "short-0": [("SchedulingGated", gang_of("appear in scheduling queue", "short", 3))],
        "short-1": [("SchedulingGated", gang_of("appear in scheduling queue", "short", 3))],
    }

    def told() -> dict[str, list[tuple[str, str]]]:
        return {name: [(event["reason"], event["note"]) for event in cluster.events(name)] for name in wanted}

    eventually(lambda: told() == wanted)

    def conditions() -> set[str]:
        return {cluster.condition(name).get("message", "") for name in wanted}

    eventually(lambda: conditions() == {texts[0][1] for texts in wanted.values()})
    assert all(event["type"] == "Normal" for event in cluster.events("held"))

    def refused() -> list[str]:
        found = [event for name in ("pair-0", "pair-1") for event in cluster.events(name, reason="FailedScheduling")]
        return [event["note"] for event in found]

    no_room = (
        f'gang "default/pair" starts with 2 pods ({RULE}): the nodes have no room for all pods that it needs at once.'
    )
    eventually(lambda: refused() == [no_room, no_room])
    assert told() == wanted, "said once"


def gang_of(to: str, job: str, size: int) -> str:
    return f'waiting for minCount pods from a gang to {to}: gang "default/{job}" starts with {size} pods ({RULE})'
