"""The example of a learned policy: its commands print what its page shows, and its scripts say what is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import onnx
import pytest

from kube_policy_scheduler.lang.model_card import CARD_KEY, read_card

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "learned"
PAGE = (EXAMPLE / "README.md").read_text()
NUMBER = re.compile(r"-?[\d,]*\.?\d+")
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example, with programs `policyctl` and `python` of this source tree."""
    (tmp_path / "bin").mkdir()
    for name, arguments in (("policyctl", "-m kube_policy_scheduler.cli"), ("python", "")):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        program.chmod(0o755)
    return Path(shutil.copytree(EXAMPLE, tmp_path / "examples" / "learned"))


def ran(command: str, folder: Path) -> tuple[str, int]:
    """Run a command in the folder of the example."""
    path = f"{folder.parents[1] / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "POLICY_SCHEDULER_MODELS": "models", "PYTHONPATH": f"{ROOT / 'engine'}"}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    return done.stdout + done.stderr, done.returncode


def is_like(printed: str, shown: str) -> bool:
    """Return whether a line has the same words, and numbers near those shown: another version trains otherwise."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split():
        return False
    numbers = [[float(each.replace(",", "")) for each in NUMBER.findall(text)] for text in (printed, shown)]
    return numbers[0] == pytest.approx(numbers[1], rel=0.3, abs=2.0 if "%" in shown else 0.02)


def test_the_commands_of_the_page_print_what_is_shown(folder: Path) -> None:
    for block in re.findall(r"```sh-session\n(.*?)\n```", PAGE, re.DOTALL):
        for step in re.split(r"(?m)^\$ ", block)[1:]:
            command, *shown = step.splitlines()
            printed, code = ran(command, folder)
            assert code == 0, (command, printed)
            lines = printed.splitlines()
            assert len(lines) == len(shown), printed
            assert all(map(is_like, lines, shown)), (command, printed)


def test_the_learned_policy_is_better_than_the_rule_on_the_page() -> None:
    found = dict(re.findall(r"(?m)^(kubernetes|[a-z]+-[a-z]+) +716 +([\d.]+)", PAGE))
    assert float(found["predicted-load"]) < float(found["current-load"]) < float(found["kubernetes"])


def trace(folder: Path) -> None:
    """Write lists with the columns of the GPU trace."""
    random, pods = Random(3), ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time"]
    for number in range(900):
        created = random.randrange(120 * 86_400, 150 * 86_400)
        gpus = random.choice((1, 2, 4))
        lasts = round(gpus * random.uniform(600, 3600))
        pods.append(f"p{number},{4000 * gpus},{8192 * gpus},{gpus},1000,,{created},{created + lasts}")
    (folder / "pods.csv").write_text("\n".join(pods) + "\n")
    nodes = ["sn,cpu_milli,memory_mib,gpu,model", *(f"n{number},96000,393216,8,G2" for number in range(8))]
    (folder / "nodes.csv").write_text("\n".join(nodes) + "\n")


def test_the_commands_for_a_gpu_trace_run_and_the_model_has_a_card(folder: Path) -> None:
    trace(folder)
    (commands,) = re.findall(r"```text\n(python gpu_days.*?)\n```", PAGE, re.DOTALL)
    commands = commands.replace("openb_node_list_all_node.csv", "nodes.csv").replace(
        "openb_pod_list_default.csv", "pods.csv"
    )
    for command in commands.replace("../../policies", str(ROOT / "policies")).replace("\\\n", "").splitlines():
        printed, code = ran(command, folder)
        assert code == 0, (command, printed)
    assert "gpu-lifetimes against gpu-best-fit" in printed
    (entry,) = onnx.load(str(folder / "models" / "runtime.onnx")).metadata_props
    card = read_card(entry.value.encode())
    assert entry.key == CARD_KEY
    assert [each.name for each in card.inputs] == [
        "pod.request.cpu / 1core",
        "pod.request.mem / 1Gi",
        "devices_wanted()",
    ]
    assert card.outcome is None


HEAD = "time,pod,node,load,wait_seconds,runtime_seconds,later\n"
ROWS = HEAD + "".join(f"{3600 * number},shop/p{number},n1,{number % 7},0,,{number % 5}\n" for number in range(300))


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (None, "", "train.py: cannot read rows.csv: "),
        ("a,b\n1,2\n", "", "train.py: rows.csv is no table of `policyctl dataset`"),
        (HEAD, "", "train.py: 0 rows to train on and 0 held out: need 100 and 10"),
        (ROWS.replace("later", "soon"), "", "train.py: rows.csv has no outcome later; it has wait_seconds, "),
        (ROWS.replace(",n1,", ",n1,x"), "", "train.py: rows.csv: the column load has something else than numbers"),
        (ROWS, "--held-out 100", "train.py: 0 rows to train on and 300 held out"),
        (ROWS, "--outcome node_load1", "train.py: --outcome: expected PROMQL@DURATION such as"),
    ],
)
def test_what_is_wrong_with_the_rows_is_said(text: str | None, options: str, said: str, folder: Path) -> None:
    if text is not None:
        (folder / "rows.csv").write_text(text)
    printed, code = ran(f"python train.py rows.csv --predict later {options} --output m.onnx", folder)
    assert code == 1
    assert printed.splitlines()[-1].startswith(said), printed
    assert not (folder / "m.onnx").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python outcomes.py later --above 1 absent.csv", "outcomes.py: absent.csv: no column later of numbers"),
        ("python outcomes.py node --above 1 rows.csv", "outcomes.py: rows.csv: no column node of numbers"),
        ("python outcomes.py runtime_seconds --above 1 rows.csv", "outcomes.py: rows.csv: no decision has a value of"),
        ("python gpu_days.py absent.csv rows.csv gpu", "gpu_days.py: cannot read absent.csv: no such file"),
        ("python gpu_days.py rows.csv rows.csv gpu", "gpu_days.py: nothing to write into gpu/nodes.csv"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(command: str, said: str, folder: Path) -> None:
    (folder / "rows.csv").write_text(ROWS)
    printed, code = ran(command, folder)
    assert code == 1
    assert printed.splitlines()[-1].startswith(said), printed
