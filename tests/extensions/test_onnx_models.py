"""Trained models as scores: read with limits, evaluated for all nodes at once, read again when they change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from kube_policy_scheduler.builtins.environment import (
    environment,
    extension_failures,
    extension_problems,
    install_extensions,
)
from kube_policy_scheduler.diagnostics import Severity, Source
from kube_policy_scheduler.extensions import onnx_models
from kube_policy_scheduler.extensions.onnx_models import FOLDER_VARIABLE, Model, find_model
from kube_policy_scheduler.installation import command_for
from kube_policy_scheduler.lang.model_card import CARD_KEY, InputCard, ModelCard, encode_card
from kube_policy_scheduler.lang.signature import Unavailable
from kube_policy_scheduler.policy.policy_set import load
from tests.extensions.onnx_bytes import FLOAT, counting, elsewhere, field, growing, of_values, tensor

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.long
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
    onnx_models._recent.clear()


def evaluated(*inputs: object, size: int = 3, name: str = "price.onnx") -> list[float]:
    kernel = environment().builtins["model"].kernel
    found = kernel(SimpleNamespace(size=size), find_model(name), *inputs)
    return np.broadcast_to(found, size).tolist()


def children() -> set[int]:
    """The processes that this one has started."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def in_use_again(name: str) -> None:
    """Wait until a model has a process."""
    until(find_model(name).current.is_running)


def kill(model: Model) -> None:
    """Have a model's process killed, as what it is asked takes too long."""
    with pytest.raises(Unavailable):
        model.evaluate(np.full((1, 1), 1e9, np.float32))


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    for _ in range(6000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("never")


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
    folder = os.environ[FOLDER_VARIABLE]
    assert problems('score model("absent.onnx", 1)\n') == [
        (
            f"there is no model absent.onnx in {folder}",
            f"put it there, or set {FOLDER_VARIABLE} to the folder of your models",
        )
    ]
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
    monkeypatch.setattr(onnx_models, "MAX_TRIAL_SECONDS", -1.0)
    with pytest.raises(ValueError, match="use a smaller model"):
        find_model("price.onnx")


@pytest.mark.parametrize("place", ["initializer", "constant", "branch", "twice"])
def test_a_model_reads_no_other_file(folder: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(folder)
    (folder / "secret").write_bytes(np.float32(42).tobytes())
    (folder / "reading.onnx").write_bytes(of_values(elsewhere("w", "secret", (1,)), place=place))
    with pytest.raises(ValueError, match=r"reading.onnx keeps values in other files \(w.*save it with all values in"):
        find_model("reading.onnx")
    inside = tensor(FLOAT, np.float32(42).tobytes(), (1,), "w")
    (folder / "reading.onnx").write_bytes(of_values(inside, place="initializer" if place == "twice" else place))
    assert evaluated(1.0, size=2, name="reading.onnx") == [42.0, 42.0]


NO_MODEL = Random(37).randbytes(1000)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"\x3a\xff", b"\x3a" + b"\xff" * 11, b"\x3b\x3c", b"\x08\x08ORTM" + b"\0" * 20, NO_MODEL],
    ids=lambda content: content[:6].hex(),
)
def test_other_bytes_are_no_model(folder: Path, content: bytes) -> None:
    (folder / "odd.onnx").write_bytes(content)
    with pytest.raises(ValueError, match=r"odd\.onnx "):
        find_model("odd.onnx")


@pytest.mark.parametrize(
    ("content", "good", "bad", "said"),
    [
        (counting(), 5.0, 1e9, "it takes more processor time than it may"),
        (growing(), 5.0, 3e8, "rows"),
    ],
    ids=["time", "memory"],
)
def test_what_a_model_takes_for_some_values_is_bounded(
    folder: Path, content: bytes, good: float, bad: float, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With zeros it is fast and small: only when it is evaluated it shows what it can do."""
    (folder / "odd.onnx").write_bytes(content)
    first = evaluated(good, size=2, name="odd.onnx")
    assert np.isfinite(first).all()
    before = extension_failures()["model", "unavailable"]

    assert np.isnan(evaluated(np.array([0.0, bad]), size=2, name="odd.onnx")).all(), "as a metric without an answer"

    assert extension_failures()["model", "unavailable"] == before + 1
    (line,) = [each.message for each in caplog.records if "has no value" in each.message]
    assert line.startswith("model odd.onnx has no value for 2 nodes: ")
    assert said in line
    assert evaluated(1.0, 1.0, size=1) == [-0.5], "another model knows nothing of it"
    in_use_again("odd.onnx")
    assert evaluated(good, size=2, name="odd.onnx") == first


def test_a_model_that_is_killed_again_pauses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(onnx_models, "time", SimpleNamespace(monotonic=lambda: now[0]))
    (folder / "odd.onnx").write_bytes(counting())
    model = find_model("odd.onnx")
    looking = []
    for pause in (0.0, 60.0, 600.0, 600.0):
        kill(model)
        now[0] += max(0.0, pause - 1.0)
        model.look()
        looking.append(model.current.is_running())
        now[0] += 1.0
        model.look()
        assert model.current.is_running()
    assert looking == [True, False, False, False]
    now[0] += onnx_models.FORGIVEN_SECONDS
    kill(model)
    model.look()
    assert model.current.is_running()


def test_a_model_that_nobody_uses_has_no_process(folder: Path) -> None:
    before = children()
    model = find_model("price.onnx")
    (mine,) = children() - before
    (folder / "price.onnx").write_bytes((MODELS / "other.onnx").read_bytes())
    model.look()
    (other,) = children() - before
    assert other != mine, "the earlier version's is gone"
    del model
    onnx_models._recent.clear()
    assert children() == before


def test_processes_end_with_the_one_that_started_them(folder: Path) -> None:
    """Also if it is killed while a model loops."""
    (folder / "odd.onnx").write_bytes(counting())
    code = (
        "import os, sys, threading, numpy as np\n"
        "from kube_policy_scheduler.extensions import onnx_models as o\n"
        "o.BASE_SECONDS = o.MOST_SECONDS = 60.0\n"
        "model = o.find_model('odd.onnx')\n"
        "print(model.current._process._pid, flush=True)\n"
        "if sys.argv[1] == 'in the middle':\n"
        "    threading.Thread(target=model.evaluate, args=(np.full((1, 1), 1e9, np.float32),), daemon=True).start()\n"
        "    sys.stdin.read(1)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    for how in ("at the end", "in the middle"):
        ran = subprocess.run([sys.executable, "-c", code, how], input="x", capture_output=True, text=True, timeout=60)
        pid = int(ran.stdout)
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists())


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
    assert extension_problems() == [f"{found[0]}; {found[1]}"]


@pytest.mark.usefixtures("folder")
def test_with_onnxruntime_nothing_is_wrong_with_the_extension() -> None:
    assert extension_problems() == []


LOAD = InputCard("load", low=0.0, high=1.0, edges=(0.5,), shares=(0.5, 0.5))


def with_card(content: bytes, card: str) -> bytes:
    """Return a model with a card among its metadata."""
    return content + field(14, field(1, CARD_KEY) + field(2, card))


def test_the_card_of_the_version_in_use_is_known(folder: Path) -> None:
    card = environment().builtins["model"].words.card
    assert card is not None
    linear = (MODELS / "linear.onnx").read_bytes()
    wanted = ModelCard((LOAD, LOAD), rows=7)
    (folder / "price.onnx").write_bytes(with_card(linear, encode_card(wanted)))
    model = find_model("price.onnx")
    assert card("price.onnx") == wanted
    assert card("absent.onnx") is None
    (folder / "price.onnx").write_bytes(linear + b"")
    os.utime(folder / "price.onnx", ns=(1, 1))
    model.look()
    assert card("price.onnx") is None, "the new version has none"


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ("{", "card.onnx has a card (policy_scheduler.card) that cannot be used: Input data was truncated"),
        (encode_card(ModelCard((LOAD,))), "card.onnx takes 2 columns, but its card (policy_scheduler.card) is about 1"),
        ("x" * 300_000, "card.onnx has a card (policy_scheduler.card) that cannot be used: it has more than 256 KiB"),
    ],
)
def test_a_card_that_cannot_be_used_is_an_error_of_the_policy(folder: Path, card: str, said: str) -> None:
    (folder / "card.onnx").write_bytes(with_card((MODELS / "linear.onnx").read_bytes(), card))
    assert [message for message, _ in problems('score model("card.onnx", 1, 1)\n')] == [said]
