"""`make demo` without a terminal: every step passes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kube_policy_scheduler.demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_help_and_unknown_arguments_start_nothing() -> None:
    shown, refused = run_demo("--help"), run_demo("--fast")
    assert (shown.returncode, refused.returncode) == (0, 2)
    assert "Run a cluster and the scheduler on this machine" in shown.stdout
    assert "unrecognized arguments: --fast" in refused.stderr
    assert "starting" not in shown.stdout + refused.stdout


def test_the_demo_passes() -> None:
    done = run_demo()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED" in done.stdout
    assert re.search(r"its status page is http://127\.0\.0\.1:\d+", done.stdout)


def test_the_demo_of_a_fleet_passes() -> None:
    done = run_demo("--fleet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED" in done.stdout
    assert not done.stderr
    for line in ("lost     berlin", "back     berlin", "web      -> iowa 6", "report   -> frankfurt 2, iowa 2"):
        assert line in done.stdout


@pytest.mark.parametrize("arguments", [(), ("--fleet",)], ids=["nodes", "fleet"])
def test_an_interruption_ends_the_demo_in_order(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "kube_policy_scheduler.demo", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        while "started the scheduler" not in running.stdout.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        told, complained = running.communicate(timeout=60)
    assert (running.returncode, complained) == (130, "")
    assert told.splitlines()[-1].endswith("ended")


def test_a_scheduler_that_ends_fails_the_demo_of_a_fleet_at_once() -> None:
    command = [sys.executable, "-m", "kube_policy_scheduler.demo", "--fleet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        while "started the scheduler, pid " not in (line := running.stdout.readline()):
            assert running.poll() is None
        os.kill(int(re.findall(r"pid (\d+)", line)[0]), signal.SIGKILL)
        told, complained = running.communicate(timeout=60)
    assert (running.returncode, complained) == (1, "")
    assert "FAILED: the scheduler " in told


def test_a_reader_that_goes_away_ends_the_demo_without_a_word() -> None:
    command = [sys.executable, "-m", "kube_policy_scheduler.demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert "starting an embedded cluster" in running.stdout.readline()
        running.stdout.close()
        assert running.stderr is not None
        assert (running.stderr.read(), running.wait(60)) == ("", 141)
