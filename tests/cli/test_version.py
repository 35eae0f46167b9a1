"""`policyctl version` says what the installation can use."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from kube_policy_scheduler.cli.main import run


def test_the_version_and_what_it_can_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    first, second, third, fourth, *_ = capsys.readouterr().out.splitlines()
    assert first == f"policyctl {metadata.version('kube-policy-scheduler')}"
    assert second.endswith(f"NumPy {metadata.version('numpy')}")
    assert third == f"compiled kernels: numba {metadata.version('numba')}"
    assert fourth.startswith("extras: fast, exact, reports, lsp")


def test_an_installation_without_numba_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = metadata.version

    def version(name: str) -> str:
        if name == "numba":
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", version)

    assert run(["version"]) == 0
    assert "install 'kube-policy-scheduler[fast]'" in capsys.readouterr().out
    assert run(["version", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["extras"]["fast"], found["extras"]["lsp"]) == (False, True)
    assert found["compiledKernels"] == {
        "usable": False,
        "numba": None,
        "problem": "numba is not installed (extra `fast`)",
    }
