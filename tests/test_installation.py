"""Errors name the command that reaches the installation that they come from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kube_policy_scheduler import installation
from kube_policy_scheduler.adapters.process import parallel
from kube_policy_scheduler.cli.main import run


def receipt(*requirements: str) -> str:
    return f"[tool]\nrequirements = [{', '.join(requirements)}]\n"


OURS = '{ name = "kube-policy-scheduler" }'
WITH_EXTRA = '{ name = "kube-policy-scheduler", extras = ["tune", "onnx"] }'
FURTHER = '{ name = "sphinx", specifier = ">=8" }, { name = "coverage", extras = ["toml"] }'
PIPX = {"main_package": {"package": "kube-policy-scheduler", "suffix": ""}}


@pytest.mark.parametrize(
    ("files", "command"),
    [
        pytest.param(
            {"pipx_metadata.json": json.dumps(PIPX)},
            "pipx inject kube-policy-scheduler 'kube-policy-scheduler[lsp]'",
            id="pipx",
        ),
        pytest.param(
            {"pipx_metadata.json": json.dumps(PIPX).replace('""', '"-next"')},
            "pipx inject kube-policy-scheduler-next 'kube-policy-scheduler[lsp]'",
            id="pipx with a suffix",
        ),
        pytest.param(
            {"pipx_metadata.json": "[]"},
            "pipx inject kube-policy-scheduler 'kube-policy-scheduler[lsp]'",
            id="other pipx",
        ),
        pytest.param({"uv-receipt.toml": receipt(OURS)}, "uv tool install 'kube-policy-scheduler[lsp]'", id="uv tool"),
        pytest.param(
            {"uv-receipt.toml": receipt(WITH_EXTRA, FURTHER)},
            "uv tool install 'kube-policy-scheduler[lsp,onnx,tune]' --with 'sphinx>=8' --with 'coverage[toml]'",
            id="uv tool with more",
        ),
        pytest.param({"uv-receipt.toml": "tool ="}, "uv tool install 'kube-policy-scheduler[lsp]'", id="broken"),
    ],
)
def test_the_command_is_that_of_the_installer(
    files: dict[str, str], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert installation.command_for("lsp") == command


@pytest.mark.parametrize(("installer", "command"), [("pip\n", "pip"), ("uv", "uv pip"), (None, "pip")])
def test_in_an_environment_it_is_that_which_installed_the_package(
    installer: str | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "INSTALLER"
            return installer

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(installation.metadata, "distribution", lambda name: Distribution())
    assert installation.command_for("exact") == f"{command} install 'kube-policy-scheduler[exact]'"


def _language_server() -> None:
    assert run(["lsp"]) == 2


def _workers() -> None:
    with pytest.raises(parallel.ParallelError) as caught, parallel.workers("processes", jobs=1):
        pass
    print(caught.value, file=sys.stderr)


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [("pygls", _language_server, "lsp"), ("joblib", _workers, "tune")],
    ids=["lsp", "tune"],
)
def test_what_is_missing_is_said_with_the_command(
    package: str,
    use: Callable[[], None],
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "uv-receipt.toml").write_text(receipt(OURS))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    gone = ("kube_policy_scheduler.cli.language_server", package)
    for name in [name for name in sys.modules if name in gone or name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    use()
    assert f"run uv tool install 'kube-policy-scheduler[{extra}]'" in capsys.readouterr().err
