"""The scheduler process: start, end and errors."""

from __future__ import annotations

import re
import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import Exchange, Fault, Front, Hold, Reply
from tests.integration.objects import node, pod


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_order(number: signal.Signals, cluster: Cluster, scheduler: StartScheduler) -> None:
    process = scheduler("--leader-election", command=("-m", "kube_policy_scheduler.daemon")).start_ready()
    eventually(lambda: "became leader" in process.log())
    process.signal(number)
    assert process.exit_code() == 0
    assert number.name in process.log()
    assert "shut down cleanly" in process.log()
    assert "Traceback" not in process.log()
    other = scheduler("--leader-election").start_ready()
    eventually(lambda: "became leader" in other.log(), within=5.0)  # far less than a lease lasts: it was given back


def test_a_repeated_hangup_is_not_a_second_signal(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    release = threading.Event()
    front.plan = lambda exchange: Hold(release) if exchange.is_about("create", "pods/binding") else None
    cluster.add_nodes(node("n1"))
    cluster.add_pods(pod("p"))
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    eventually(lambda: front.asked("create", "pods/binding"))
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
        process.signal(number)
        eventually(lambda: "shutting down: finishing bindings" in process.log())
    assert process.is_alive
    release.set()
    assert process.exit_code() == 0
    assert cluster.placements() == {"p": "n1"}


UNDER_NOHUP = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from kube_policy_scheduler.daemon.main import main
main()
"""


def test_under_nohup_it_goes_on_when_the_terminal_goes(cluster: Cluster, scheduler: StartScheduler) -> None:
    process = scheduler(command=("-c", UNDER_NOHUP)).start_ready()
    process.signal(signal.SIGHUP)
    cluster.add_nodes(node("n1"))
    cluster.add_pods(pod("p"))
    cluster.wait_bound("p")
    assert process.terminate() == 0


def test_bindings_in_flight_are_finished_and_reported_before_it_ends(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    release = threading.Event()

    def slow_bindings(exchange: Exchange) -> Fault | None:
        return Hold(release) if exchange.is_about("create", "pods/binding") else None

    front.plan = slow_bindings
    cluster.add_nodes(node("n1"))
    names = [f"p{i}" for i in range(5)]
    cluster.add_pods(*(pod(name) for name in names))
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    eventually(lambda: len(front.asked("create", "pods/binding")) == len(names))
    process.signal(signal.SIGTERM)
    eventually(lambda: "shutting down: finishing bindings" in process.log())
    cluster.add_pods(pod("late"))
    release.set()
    assert process.exit_code() == 0
    placed = cluster.placements()
    assert {name: placed[name] for name in names} == dict.fromkeys(names, "n1")
    assert placed["late"] == "", "what comes after the signal is left to the next one"
    for name in names:
        assert len(cluster.events(name, reason="Scheduled")) == 1


def test_it_ends_soon_even_when_the_api_server_is_away(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    """A pod has 30 s from SIGTERM to SIGKILL; events that can't be sent must not use them up."""
    cluster.add_pods(pod("waits"))
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    eventually(lambda: cluster.condition("waits"))
    front.plan = lambda exchange: Hold() if exchange.resource in ("events", "pods/binding") else None
    cluster.add_nodes(node("n1"))
    eventually(lambda: front.asked("create", "pods/binding"))
    front.down()
    process.signal(signal.SIGTERM)
    assert process.exit_code(within=25.0) == 0


def config_with(text: str) -> str:
    return f"apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n{text}"


BEGINNINGS: dict[str, tuple[list[str], dict[str, str], str]] = {
    "no kubeconfig at all": (
        ["--policies=policies"],
        {},
        r"kubeconfig .*/\.kube/config.* (not|no) ",
    ),
    "a kubeconfig that is not there": (
        ["--kubeconfig=nowhere", "--policies=policies"],
        {},
        r"nowhere.* (not|no) ",
    ),
    "a kubeconfig that is no YAML": (
        ["--kubeconfig=broken", "--policies=policies"],
        {"broken": "clusters: [{"},
        r"broken",
    ),
    "a context that is not in it": (
        ["--kubeconfig=empty", "--context=staging", "--policies=policies"],
        {"empty": "apiVersion: v1\nkind: Config\ncontexts: []\nclusters: []\nusers: []\n"},
        r"staging",
    ),
    "an unknown flag": (["--polices=policies"], {}, r"No such option.*--polices"),
    "an address without a port": (["--http-address=localhost"], {}, r"expected HOST:PORT"),
    "a configuration that is not there": (["--config=nowhere.yaml"], {}, r"nowhere\.yaml"),
    "a configuration with a wrong key": (
        ["--config=config.yaml"],
        {"config.yaml": config_with("polices:\n  path: policies\n")},
        r"config\.yaml:3:1: error.*polices.*\n(.*\n)*.*policies",
    ),
    "a key of a later version is not why": (
        ["--config=config.yaml", "--kubeconfig=nowhere", "--policies=policies"],
        {"config.yaml": config_with("http: {websockets: true}\n")},
        r"WARNING this version does not know a key of the configuration, ignoring it"
        r' key="http\.websockets \(.*config\.yaml, line 3\)"\n(.*\n)*.*nowhere.* (not|no) ',
    ),
    "lease times that do not fit together": (
        ["--config=config.yaml", "--kubeconfig=admin", "--policies=policies"],
        {
            "config.yaml": config_with("leaderElection: {renewDeadline: 10s, retryPeriod: 9s}\n"),
            "admin": "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
            "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
            "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n",
        },
        r"config\.yaml:3:\d+: error.*retryPeriod",
    ),
}


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_what_cannot_begin_says_why_and_exits_with_2(beginning: str, scheduler: StartScheduler, tmp_path: Path) -> None:
    arguments, files, said = BEGINNINGS[beginning]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    absolute = [re.sub(r"^(--[a-z]+)=(nowhere.*|broken|empty|admin|config\.yaml|policies)$", rf"\1={tmp_path}/\2", a)
                for a in arguments]  # fmt: skip
    process = scheduler(*absolute, defaults=False).start()
    assert process.exit_code() == 2
    assert re.search(said, process.log()), process.log()
    assert "Traceback" not in process.log()


def test_a_taken_http_port_is_named(cluster: Cluster, scheduler: StartScheduler) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = scheduler(f"--http-address=127.0.0.1:{port}").start()
        assert process.exit_code() == 2
    assert f"cannot listen at 127.0.0.1:{port}: address already in use" in process.log()
    assert "Traceback" not in process.log()


def test_an_api_server_out_of_reach_is_one_line_and_growing_pauses(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    config = front.kubeconfig(tmp_path / "front")
    front.down()
    process = scheduler(kubeconfig=config).start_serving()
    eventually(lambda: "cannot reach" in process.log())
    front.stay_away(2.5)
    front.up()
    eventually(lambda: process.get("/readyz")[0] == 200)
    warnings = [entry for entry in process.log_entries() if entry["level"] != "info"]
    assert len(warnings) == 1
    assert warnings[0]["message"].endswith("retrying with backoff")
    (back,) = [entry for entry in process.log_entries() if "reachable again" in entry["message"]]
    assert back["attempts"] < 16 * 8, "sixteen watches that try twice a second or less"
    assert process.terminate() == 0


BROKEN = """
from kube_policy_scheduler.daemon.{module} import {name}
from kube_policy_scheduler.daemon.main import main
was, broken = {name}.{method}, []
async def {method}(self, *given, **named):
    if not broken:
        broken.append(True)
        raise ZeroDivisionError("a fault of ours")
    return await was(self, *given, **named)
{name}.{method} = {method}
main()
"""
"""The program, with a loop that breaks once."""


def test_a_loop_without_which_nothing_can_be_trusted_ends_the_process_with_its_reason(
    cluster: Cluster, scheduler: StartScheduler
) -> None:
    broken = BROKEN.format(module="scheduling.schedule_one", name="Scheduler", method="run")
    process = scheduler("--leader-election", command=("-c", broken)).start()
    assert process.exit_code() == 1
    (reason,) = [entry for entry in process.log_entries() if entry["message"].startswith("stopping: ")]
    assert reason["message"].endswith("unexpected error in loop scheduling: ZeroDivisionError('a fault of ours')")


def test_a_loop_that_others_can_do_without_begins_again_and_is_counted(
    cluster: Cluster, scheduler: StartScheduler
) -> None:
    broken = BROKEN.format(module="scheduling.cache_comparer", name="CacheComparer", method="run")
    process = scheduler(command=("-c", broken)).start_ready()
    eventually(lambda: 'policy_scheduler_loop_breaks_total{loop="recount"} 1.0' in process.get("/metrics")[1])
    eventually(lambda: 'policy_scheduler_loop_up{loop="recount"} 1.0' in process.get("/metrics")[1])
    cluster.add_nodes(node("n1"))
    cluster.add_pods(pod("p"))
    cluster.wait_bound("p")
    assert "unexpected error in loop recount" in process.log()


def test_what_is_under_way_is_seen_from_outside(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    release = threading.Event()

    def slow(exchange: Exchange) -> Fault | None:
        if exchange.is_about("patch", "pods/status"):
            return Reply(503, "ServiceUnavailable")
        return Hold(release) if exchange.is_about("create", "pods/binding") else None

    front.plan = slow
    cluster.add_nodes(node("n1", cpu="1"))
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(pod("p", cpu="100m"), pod("big", cpu="64"))

    def seen() -> bool:
        code, text = process.get("/readyz?verbose")
        return code == 200 and "1 pod in flight" in text and "1 of pod-status to be sent, 1 of them failing" in text

    eventually(seen)
    code, text = process.get("/metrics")
    assert code == 200
    assert 'policy_scheduler_write_backlog{kind="pod-status"} 1.0' in text
    assert re.search(r'policy_scheduler_oldest_pod_seconds{state="in_flight"} [1-9.]', text)
    for loop in ("scheduling", "lease", "watch-pods", "watch-nodes", "policy-reload", "policy-directory", "events"):
        assert f'policy_scheduler_loop_up{{loop="{loop}"}} 1.0' in text
    release.set()


def test_probes_metrics_and_configuration_are_served(cluster: Cluster, scheduler: StartScheduler) -> None:
    cluster.add_nodes(node("n1"), node("n2"))
    process = scheduler().start_ready()
    cluster.add_pods(*(pod(f"p{i}") for i in range(3)))
    cluster.wait_bound()
    assert process.get("/livez") == (200, "ok")
    assert process.get("/healthz")[0] == 200
    assert "[+]policies ok" in process.get("/readyz?verbose")[1]
    eventually(lambda: process.metrics().get('scheduler_cache_size{type="pods"}') == 3)
    metrics = process.metrics()
    assert metrics['scheduler_cache_size{type="nodes"}'] == 2
    scheduled = sum(n for key, n in metrics.items() if key.startswith("scheduler_schedule_attempts_total") and
                    'result="scheduled"' in key)  # fmt: skip
    assert scheduled == 3
    assert metrics["policy_scheduler_policy_last_reload_successful"] == 1
    code, text = process.get("/configz")
    assert code == 200
    assert '"schedulerNames"' in text


def test_a_second_signal_ends_it_at_once(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    front.plan = lambda exchange: Hold() if exchange.is_about("create", "pods/binding") else None
    cluster.add_nodes(node("n1"))
    cluster.add_pods(pod("hangs"))
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    eventually(lambda: front.asked("create", "pods/binding"))
    process.signal(signal.SIGTERM)
    eventually(lambda: "a second signal exits immediately" in process.log())
    process.signal(signal.SIGTERM)
    assert process.exit_code(within=20.0) == 1
    assert "Traceback" not in process.log()
