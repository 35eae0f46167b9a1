"""`policyctl playground`: what the page may open and write, and how the command begins and ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kube_policy_scheduler.cli.commands.playground import ClusterSources, FileDoors
from kube_policy_scheduler.cli.given import Given
from kube_policy_scheduler.playground.opening import start, start_policy
from kube_policy_scheduler.playground.server import FileChanged
from kube_policy_scheduler.playground.session import CapturedTest, Origin, PodChoice, RequestError, Session
from kube_policy_scheduler.playground.sharing import FORMAT, Share, link_of, shared_text

CLUSTER = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "a1"},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
        }
    ],
}
DRIVER = "from kube_policy_scheduler.cli.__main__ import main; main()"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    here = tmp_path / "here"
    here.mkdir()
    (here / "cluster.json").write_text(json.dumps(CLUSTER))
    (here / "a.policy").write_text("filter node.ready\n")
    (here / "note.txt").write_text("no cluster")
    (here / "sub").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "cluster.json").write_text(json.dumps(CLUSTER))
    (here / "link.json").symlink_to(outside / "cluster.json")
    (here / "linked").symlink_to(outside)
    (here / "ring").symlink_to(here / "ring")
    return here


@pytest.fixture
def doors(folder: Path) -> FileDoors:
    sources = ClusterSources(Given(now=0.0), live=False)
    return FileDoors(folder, {"a.policy": folder / "a.policy"}, sources)


@pytest.fixture(scope="module")
def captured() -> CapturedTest:
    started = start()
    asked = Session({"a.policy": "filter node.ready and fits(cpu, mem)\nscore least_allocated()\n"}, started.cluster)
    return asked.test_of(asked.opened, PodChoice(key="shop/web-next"))


def test_a_saved_cluster_below_the_folder_can_be_opened(doors: FileDoors) -> None:
    assert doors.refresh()[0].origin is Origin.FIXTURE
    cluster, _ = doors.open("cluster.json")
    assert (cluster.origin, len(cluster.things)) == (Origin.SNAPSHOT, 1)


def test_the_cluster_that_was_opened_last_is_read_again(doors: FileDoors, folder: Path) -> None:
    doors.open("cluster.json")
    file = folder / "cluster.json"
    file.write_text(json.dumps(CLUSTER | {"items": []}))
    with pytest.raises(RequestError, match="has no objects"):
        doors.refresh()
    file.write_text(json.dumps(CLUSTER))
    assert doors.refresh()[0].name == "cluster.json"


LINKS = ["link.json", "linked/cluster.json", "ring"]
OUTSIDE = ["", "../outside/cluster.json", "/etc/hostname", *LINKS, "x" * 5000, "a\0b"]
NO_TESTS = ["sub/x.yaml", ".test.yaml", "a.policy", "nowhere/x.test.yaml"]


@pytest.mark.parametrize("path", [*OUTSIDE, "nowhere.json", "sub", "note.txt"], ids=lambda path: path[:30] or "empty")
def test_nothing_else_can_be_opened(doors: FileDoors, path: str) -> None:
    with pytest.raises(RequestError, match=r"\w"):
        doors.open(path)


@pytest.mark.parametrize("path", [*OUTSIDE, *NO_TESTS], ids=lambda path: path[:30] or "empty")
def test_tests_are_written_below_the_folder_only(
    doors: FileDoors, captured: CapturedTest, path: str, tmp_path: Path
) -> None:
    before = contents(tmp_path)
    with pytest.raises(RequestError):
        doors.save_test(captured, path, replace=True, dry_run=False)
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_test_is_written_once(doors: FileDoors, captured: CapturedTest, folder: Path) -> None:
    _, shown = doors.save_test(captured, "sub/x.test.yaml", replace=False, dry_run=True)
    assert not (folder / "sub/x.test.yaml").exists()
    path, text = doors.save_test(captured, "sub/x.test.yaml", replace=False, dry_run=False)
    assert path == "sub/x.test.yaml"
    assert text == shown == (folder / path).read_text()
    assert "policy: ../a.policy\n" in text
    with pytest.raises(RequestError, match="already exists"):
        doors.save_test(captured, "sub/x.test.yaml", replace=False, dry_run=False)
    doors.save_test(captured, "sub/x.test.yaml", replace=True, dry_run=False)


@pytest.mark.parametrize("name", ["b.policy", "../a.policy", "/etc/a.policy", "note.txt"])
def test_only_policies_that_were_opened_are_written_back(doors: FileDoors, folder: Path, name: str) -> None:
    before = contents(folder)
    with pytest.raises(RequestError, match="not opened"):
        doors.save(name, "", replaced="")
    assert contents(folder) == before
    doors.save("a.policy", "score 1\n", replaced="filter node.ready\n")
    assert (folder / "a.policy").read_text() == "score 1\n"


def test_a_policy_that_changed_on_disk_is_not_replaced(doors: FileDoors, folder: Path) -> None:
    file = folder / "a.policy"
    opened = file.read_text()
    file.write_text("score 2\n")
    with pytest.raises(FileChanged, match=r"a\.policy was changed on disk since you opened it") as raised:
        doors.save("a.policy", "score 1\n", replaced=opened)
    assert raised.value.text == file.read_text() == "score 2\n"
    doors.save("a.policy", "score 2\n", replaced=opened)  # the same text: nothing is lost
    doors.save("a.policy", "score 1\n", replaced=raised.value.text)
    assert file.read_text() == "score 1\n"
    file.unlink()
    doors.save("a.policy", "score 3\n", replaced="score 1\n")
    assert file.read_text() == "score 3\n"


@pytest.mark.parametrize("content", [b"\xff", None], ids=["no text", "a folder"])
def test_a_policy_that_became_something_else_is_not_replaced(
    doors: FileDoors, folder: Path, content: bytes | None
) -> None:
    file = folder / "a.policy"
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(RequestError):
        doors.save("a.policy", "score 1\n", replaced="filter node.ready\n")
    assert file.is_dir() if content is None else file.read_bytes() == content


# --- the command itself ----------------------------------------------------------------------------------


Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(folder: Path) -> Iterator[Run]:
    running: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", DRIVER, "playground", *arguments]
        environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
        made = subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        running.append(made)
        return made

    yield begin
    for each in running:
        each.kill()
        each.communicate()


@pytest.mark.long
@pytest.mark.parametrize("arguments", [(), ("--no-open", "a.policy", "--cluster", "cluster.json")], ids=str)
def test_it_prints_its_address_and_ends_with_ctrl_c(run: Run, arguments: tuple[str, ...]) -> None:
    made = run(*arguments)
    assert made.stdout is not None
    assert re.fullmatch(r"Playground: http://127\.0\.0\.1:\d+/#[\w-]{32}\n", made.stdout.readline())
    made.send_signal(signal.SIGINT)
    _, said = made.communicate(timeout=30)
    assert made.returncode == 130
    assert "Traceback" not in said
    assert ("there is no browser here" in said) == (not arguments)


@pytest.mark.long
def test_a_port_that_is_taken_ends_it(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        made = run("--no-open", "--port", str(port))
        out, said = made.communicate(timeout=60)
    assert (made.returncode, out) == (2, "")
    assert said == f"Error: cannot listen at 127.0.0.1:{port}: address already in use; choose another with --port\n"


@pytest.mark.long
def test_what_was_shared_is_opened(run: Run, folder: Path) -> None:
    share = Share(FORMAT, {"a.policy": start_policy()}, PodChoice(key="ml/huge"))
    link = link_of(share, "http://127.0.0.1:1")
    assert link is not None
    (folder / "shared.json").write_text(shared_text(share))
    for given in ("shared.json", link):
        made = run("--no-open", given)
        assert made.stdout is not None
        assert made.stdout.readline().startswith("Playground: ")
