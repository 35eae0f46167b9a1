"""Actions, images and packages of builds and checks are pinned."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fuzz.targets import targets

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*"))
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))


def workflow(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    found["on"] = found.pop(True)  # YAML 1.1 reads `on` as true
    return dict(found)


def steps(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for job in workflow(path)["jobs"].values():
        for step in job["steps"]:
            yield job, step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_commits_that_say_their_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert len(used) == sum("uses" in step for _, step in steps(path))
    loose = [line for line in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)]
    assert not loose


def test_an_action_has_one_version_everywhere() -> None:
    pins: dict[str, set[str]] = {}
    for path in WORKFLOWS + ACTIONS:
        for action, pin in re.findall(r"uses: ([^@\s]+)@(.*)", path.read_text(encoding="utf-8")):
            pins.setdefault(action, set()).add(pin)
    assert {action: found for action, found in pins.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_only_read_and_end_in_time(path: Path) -> None:
    assert workflow(path)["permissions"] == {"contents": "read"}
    for job in workflow(path)["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 60
        runs = [step["run"] for step in job["steps"] if "run" in step]
        if "permissions" in job:
            assert not re.search(r"make|pip|\.ci/|python", "\n".join(runs)), "what may write runs no new release"
        else:
            checkouts = [step for step in job["steps"] if "actions/checkout@" in step.get("uses", "")]
            assert [step["with"]["persist-credentials"] for step in checkouts] == [False]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_workflows_run_is_here_and_takes_no_text_of_strangers(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(VENV)", ".venv")
    for _, step in steps(path):
        command = step.get("run", "")
        assert not re.search(r"\$\{\{ *github\.(event|head_ref)", command)
        for script in re.findall(r"(?<!\S)\.ci/\w+", command):
            assert (ROOT / script).stat().st_mode & 0o100
        for target in re.findall(r"\bmake (\S+)", command):
            assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)


def test_known_vulnerabilities_and_every_parser_are_looked_at_on_a_schedule() -> None:
    audit = workflow(ROOT / ".github/workflows/audit.yml")
    crons = {entry["cron"] for entry in audit["on"]["schedule"]}
    assert len(crons) == 2
    for job in audit["jobs"].values():
        (other,) = re.findall(r"schedule != '([^']+)'", job["if"])
        assert other in crons, "each job knows the other's time"
    assert set(audit["jobs"]["fuzz"]["strategy"]["matrix"]["parser"]) == targets().keys()


def test_newer_versions_are_asked_for_everywhere_that_something_is_pinned() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8"))["updates"]
    assert {(each["package-ecosystem"], each["directory"]) for each in updates} == {
        ("github-actions", "/"), ("docker", "/deploy"), ("pip", "/"),
    }  # fmt: skip
    runs = [step.get("run", "") for _, step in steps(ROOT / ".github/workflows/dependencies.yml")]
    (renewal,) = [run for run in runs if run.endswith("make lock")]
    assert renewal.startswith("UPGRADE=1 ")
    assert "UPGRADE" in (ROOT / ".ci/lock").read_text(encoding="utf-8")


@pytest.mark.parametrize("lock", sorted(ROOT.glob("requirements*.lock")), ids=lambda path: path.name)
def test_each_locked_package_has_hashes(lock: Path) -> None:
    entries = re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8").strip())
    assert not [
        entry for entry in entries if not re.match(r"[a-z0-9-]+==\S+(?: ; [^\\]+)? \\\n    --hash=sha256:", entry)
    ]


def test_the_fuzzer_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (wanted,) = project["optional-dependencies"]["fuzz"]
    assert (ROOT / "requirements-fuzz.lock").read_text(encoding="utf-8").startswith(wanted.partition(">")[0] + "==")
    assert f"'{wanted}'" in (ROOT / ".ci/lock").read_text(encoding="utf-8")


def test_reports_have_an_address_and_versions_where_hosts_look() -> None:
    text = (ROOT / ".github/SECURITY.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "Report a vulnerability" in text
    assert f"newest minor release ({project['version'].rpartition('.')[0]})" in text


@pytest.mark.long
def test_a_release_of_another_version_than_the_tag_stops_before_it_builds() -> None:
    release = [
        step["run"] for _, step in steps(ROOT / ".github/workflows/release.yml") if ".ci/release" in step.get("run", "")
    ]
    assert release == ['.ci/release .venv/bin/python "${GITHUB_REF_NAME#v}"']
    done = subprocess.run([ROOT / ".ci/release", sys.executable, "9.9.9"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the tag says 9.9.9, and pyproject.toml says ")
