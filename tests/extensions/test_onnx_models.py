"""Trained models as scores: read with limits, evaluated for all nodes at once, read again when they change."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kube_policy_scheduler.builtins.environment import environment, install_extensions
from kube_policy_scheduler.diagnostics import Severity, Source
from kube_policy_scheduler.extensions import onnx_models
from kube_policy_scheduler.extensions.onnx_models import FOLDER_VARIABLE, find_model
from kube_policy_scheduler.installation import command_for
from kube_policy_scheduler.policy.policy_set import load

pytest.importorskip("onnxruntime")
MODELS = Path(__file__).parent / "models"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a model of two inputs, `x - 2 y + 0.5`, and the function `model` for policies."""
    shutil.copy(MODELS / "linear.onnx", tmp_path / "price.onnx")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(onnx_models, "MAX_TRIAL_SECONDS", 10.0)
    install_extensions(["onnx"], stopwatch=lambda: 0.0)
    yield tmp_path
    install_extensions((), stopwatch=lambda: 0.0)


def evaluated(*inputs: object, size: int = 3) -> list[float]:
    kernel = environment().builtins["model"].kernel
    found: list[float] = kernel(SimpleNamespace(size=size), find_model("price.onnx"), *inputs).tolist()
    return found


def problems(text: str) -> list[tuple[str, str]]:
    found = load([Source("a.policy", text)]).diagnostics
    return [(each.message, each.help) for each in found if each.severity is Severity.ERROR]


@pytest.mark.usefixtures("folder")
def test_all_nodes_are_evaluated_at_once() -> None:
    assert evaluated(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.5])) == [1.5, 0.5, 2.5]
    assert evaluated(np.array([1.0, 2.0, 3.0]), 1.0) == [-0.5, 0.5, 1.5]
    assert evaluated(1.0, 1.0, size=2) == [-0.5, -0.5]


@pytest.mark.usefixtures("folder")
def test_a_missing_input_is_a_missing_result() -> None:
    found = evaluated(np.array([1.0, np.nan, 3.0]), np.array([0.0, 1.0, np.nan]))
    assert found[0] == 1.5
    assert np.isnan(found[1:]).all()


@pytest.mark.usefixtures("folder")
def test_a_policy_is_checked_against_the_model() -> None:
    assert problems('score model("price.onnx", node.used_fraction.cpu, node.used_fraction.mem)\n') == []
    (one,) = problems('score model("price.onnx", node.used_fraction.cpu)\n')
    assert one[0] == "price.onnx takes 2 inputs, but 1 are given"
    ((message, _),) = problems('score model("absent.onnx", 1)\n')
    assert message == "cannot read the model absent.onnx: no such file or directory"
    assert problems('filter model("price.onnx", 1, 1) > 0\n'), "a model compares nodes in scores only"


@pytest.mark.parametrize("name", ["../price.onnx", "/etc/passwd", "price", ".onnx", "a/b.onnx", ""])
@pytest.mark.usefixtures("folder")
def test_only_files_of_the_folder_are_read(name: str) -> None:
    with pytest.raises(ValueError, match="expected the name of a file such as"):
        find_model(name)


def test_invalid_large_and_slow_models_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "odd.onnx").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="is no model that onnxruntime can use"):
        find_model("odd.onnx")
    os.mkfifo(folder / "pipe.onnx")
    with pytest.raises(ValueError, match="is not a regular file"):
        find_model("pipe.onnx")
    monkeypatch.setattr(onnx_models, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="is larger than"):
        find_model("price.onnx")
    monkeypatch.undo()
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    monkeypatch.setattr(onnx_models, "MAX_TRIAL_SECONDS", 0.0)
    with pytest.raises(ValueError, match="use a smaller model"):
        find_model("price.onnx")


def test_a_changed_file_is_used_and_a_broken_one_is_not(folder: Path) -> None:
    model = find_model("price.onnx")
    assert evaluated(1.0, 1.0, size=1) == [-0.5]
    (folder / "new").write_bytes((MODELS / "other.onnx").read_bytes())
    (folder / "new").rename(folder / "price.onnx")
    model.look()
    assert evaluated(1.0, 1.0, size=1) == [6.0]
    (folder / "price.onnx").write_bytes(b"half a model")
    model.look()
    assert evaluated(1.0, 1.0, size=1) == [6.0]


def test_without_onnxruntime_the_error_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(folder / "price.onnx", folder / "second.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (found,) = problems('score model("second.onnx", 1, 1)\n')
    assert found[0] == "`model` needs onnxruntime"
    assert found[1].startswith(f"run {command_for('onnx')}, or build the image with")
