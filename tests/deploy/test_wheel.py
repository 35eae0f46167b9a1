"""The wheel works without the checkout: built from the files, installed in an environment that has nothing of ours.

With it deploy/GETTING-STARTED.md is typed in, whole: its files, its commands and their results.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import click
import pytest
import yaml

from kube_policy_scheduler.cli.main import policyctl
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "deploy" / "GETTING-STARTED.md"
SECONDS = 90.0
_BLOCK = re.compile(r"<!-- file: (?P<file>\S+) -->\n```\w+\n(?P<text>.*?)\n```|```sh\n(?P<sh>.*?)\n```", re.DOTALL)
PARTS = ("pyproject.toml", "README.md", "LICENSE", "engine", "grammar")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    sources.mkdir()
    for name in PARTS:
        path = ROOT / name
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(path, sources / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(path, sources / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    offline = ["--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([*pip, *offline, str(sources)], check=True, timeout=170)
    (found,) = folder.glob("*.whl")
    return found


def test_it_takes_one_name_at_the_top(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kube_policy_scheduler"}


def bare() -> dict[str, str]:
    """Return the variables of the environment without what would lead Python to this checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def script(text: str) -> Iterator[str]:
    """Yield the page as commands of a shell; a port that may be taken on this machine becomes a free one."""
    for found in _BLOCK.finditer(text):
        if found["file"] is not None:
            yield f"mkdir -p $(dirname {found['file']}); cat > {found['file']} <<'END'\n{found['text']}\nEND"
        else:
            yield found["sh"].replace("policy-scheduler --", "policy-scheduler --http-address 127.0.0.1:0 --")


def promised(text: str) -> list[str]:
    """Return the lines that the page shows below its commands."""
    return re.findall(r"```\n\n    (\S.*)\n", text)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment that has the wheel, and what it depends on."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True, timeout=120)
    (packages,) = environment.glob("lib/python*/site-packages")
    # what it depends on, without our own package: a .pth below a .pth is not read
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment


def test_its_programs_work_in_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    def run(name: str, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [installed / "bin" / name, *arguments],
            cwd=tmp_path,
            env=bare(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    where = "import kube_policy_scheduler as k; print(k.__file__)"
    assert Path(run("python", "-c", where)[1].strip()).is_relative_to(installed)
    (tmp_path / "card.policy").write_text("filter node.redy\n")
    code, out = run("policyctl", "lint", "card.policy", "--format", "json")
    assert code == 1
    assert [each["code"] for each in json.loads(out)] == ["P0102"]
    for kind in ("tests", "configuration"):
        assert "properties" in json.loads(run("policyctl", "schema", kind)[1])
    assert run("policyctl", "functions", "clamp")[0] == 0
    code, out = run("kubectl-policy", "lint", "--help")
    assert (code, out.splitlines()[0]) == (0, "Usage: kubectl policy lint [OPTIONS] PATH...")
    assert run("kubectl_complete-policy", "expl")[1].splitlines()[-1] == ":4"
    assert run("policyctl", "man", "man1") == (0, "")
    assert (tmp_path / "man1" / "policyctl-lint.1").exists()


@pytest.mark.needs("kubectl")
def test_with_it_a_newcomer_gets_to_the_end_of_the_page(installed: Path, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(promised(text)) == 3
    commands = "\n".join(script(text))
    assert commands.count("kubectl create -f web.yaml") == 2
    path = f"{installed / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**bare(), "PATH": path, "HOME": str(tmp_path), "NO_PROXY": "*"}
    out = tmp_path / "printed"  # a file: what goes on in the background would keep a pipe open
    with out.open("wb") as printing:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printing,
            stderr=printing,
            start_new_session=True,
        )
    try:
        code: int | None = process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the cluster and the scheduler, which the page leaves running
        process.wait(PATIENCE_SECONDS)
    printed = out.read_text()
    log = tmp_path / "scheduler.log"
    assert code == 0, printed + (log.read_text() if log.exists() else "")
    lines = iter(printed.splitlines())
    for wanted in promised(text):
        assert any(line.startswith(wanted) for line in lines), f"{wanted!r} is not in, or not in order:\n{printed}"


def test_the_hooks_for_other_repositories_call_commands_that_there_are() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    shown = (ROOT / "editors" / "README.md").read_text(encoding="utf-8")
    for hook in hooks:
        program, command, *_ = hook["entry"].split()
        assert program == "policyctl"
        assert command in policyctl.list_commands(click.Context(policyctl))
        assert f"id: {hook['id']}" in shown


def test_the_action_for_other_repositories_checks_their_policies(tmp_path: Path) -> None:
    action = yaml.safe_load(
        (ROOT / ".github" / "actions" / "check-policies" / "action.yml").read_text(encoding="utf-8")
    )
    (tmp_path / "policyctl").symlink_to(Path(sys.prefix))  # instead of an installation
    (tmp_path / "bad.policy").write_text("filter node.redy\n")
    steps = [step for step in action["runs"]["steps"] if "POLICIES" in step.get("env", {})]
    assert [step["name"] for step in steps] == ["policyctl lint", "policyctl fmt", "policyctl test"]
    for step in steps:
        environment = {"RUNNER_TEMP": str(tmp_path), "PATH": os.environ["PATH"], "POLICIES": str(ROOT / "policies")}
        good = subprocess.run([step["shell"], "-ec", step["run"]], env=environment, capture_output=True, text=True)
        assert good.returncode == 0, good.stdout + good.stderr
    bad = subprocess.run(
        ["bash", "-ec", steps[0]["run"]],
        cwd=tmp_path,
        env=environment | {"POLICIES": "."},
        capture_output=True,
        text=True,
    )
    assert bad.returncode == 1
    assert bad.stdout.startswith("::error file=bad.policy,line=1")
