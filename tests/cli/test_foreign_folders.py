"""A folder of unknown origin: its names and links cannot leave the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kube_policy_scheduler.cli.main import run

SECRET = "hunter2 is the password"
TEST = """\
policy: {policy}
{more}
nodes: [{{name: a, cpu: 4, mem: 16Gi}}]
cases:
- {{name: c, pod: {{cpu: 1}}, expect: {{node: a}}}}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project beside a secret; it is the working directory."""
    (tmp_path / "secret").write_text(SECRET)
    folder = tmp_path / "project" / "tests"
    folder.mkdir(parents=True)
    (tmp_path / "project" / "a.policy").write_text("filter fits(cpu, mem)\n")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def write_test(project: Path, policy: str, more: str = "") -> None:
    (project / "tests" / "x.test.yaml").write_text(TEST.format(policy=policy, more=more))


@pytest.mark.parametrize(
    ("policy", "more"),
    [
        ("/etc/passwd", ""),
        ("{outside}/secret", ""),
        ("../../secret", ""),
        ("link.policy", ""),
        ("folder/secret", ""),
        ("../a.policy", "cluster: ../../secret"),
        ("../a.policy", "cluster: {outside}/secret"),
        ("../a.policy", "cluster: recorded"),
        ("../a.policy", "forall: [{{name: p, pods: ../../secret, expect: {{node: a}}}}]"),
        ("../a.policy", "invalid: [{{name: p, policy: ../../secret}}]"),
    ],
)
def test_a_test_file_names_no_files_outside_its_project(
    project: Path, policy: str, more: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = project.parent
    (project / "tests" / "link.policy").symlink_to(outside / "secret")
    (project / "tests" / "folder").symlink_to(outside)
    (project / "tests" / "recorded").mkdir()
    (project / "tests" / "recorded" / "c.yaml").symlink_to(outside / "secret")
    write_test(project, policy.format(outside=outside), more.format(outside=outside))

    assert run(["test", "tests"]) == 2

    said = capsys.readouterr()
    assert f"is outside {project}" in said.err
    assert SECRET not in said.err + said.out


def test_files_of_the_project_may_be_named_and_others_with_a_flag(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_test(project, "../a.policy")
    assert run(["test", "tests"]) == 0
    write_test(project, f"{project}/a.policy")
    assert run(["test", "tests"]) == 0
    (project / "tests" / "inside.policy").symlink_to(project / "a.policy")
    write_test(project, "inside.policy")
    assert run(["test", "tests"]) == 0
    write_test(project, "../a.policy")
    monkeypatch.chdir("/tmp")
    capsys.readouterr()
    assert run(["test", str(project / "tests")]) == (0 if project.is_relative_to("/tmp") else 2)
    monkeypatch.chdir(project / "tests")
    assert run(["test", "."]) == 2
    assert "for files elsewhere, use --root FOLDER" in capsys.readouterr().err
    assert run(["test", ".", "--root", ".."]) == 0


@pytest.mark.parametrize("command", [["lint"], ["fmt"], ["why", "p", "--policies"], ["canary", "list"]], ids=" ".join)
def test_a_link_out_of_a_folder_is_refused(
    project: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "b.policy").symlink_to(project.parent / "secret")

    assert run([*command, "."]) == 2

    said = capsys.readouterr()
    assert f"b.policy is a link to {project.parent}/secret, which is outside {project}" in said.err
    assert SECRET not in said.err + said.out


def test_what_is_not_a_file_is_not_waited_for(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(project / "b.policy")

    assert run(["lint", "."]) == 2

    assert "b.policy is not a file" in capsys.readouterr().err


def test_a_config_map_as_it_is_mounted_is_read(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mounted = project.parent / "mounted"
    (mounted / "..2026").mkdir(parents=True)
    (mounted / "..2026" / "a.policy").write_text("filter fits(cpu, mem)\n")
    (mounted / "..data").symlink_to("..2026")
    (mounted / "a.policy").symlink_to("..data/a.policy")

    assert run(["lint", str(mounted)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", ['"a\\0b"', "x" * 5000, "pipe"])
def test_targets_that_are_not_files_are_errors(project: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(project / "tests" / "pipe")
    write_test(project, name)

    assert run(["test", "tests"]) == 2

    assert "cannot read" in capsys.readouterr().err
