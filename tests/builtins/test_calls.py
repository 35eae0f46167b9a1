"""Calls of every builtin, made from its signature, against plain Python on one node at a time.

Two laws hold for each of them: the value of a node is the same whichever other nodes are looked at (unless the
builtin compares nodes), and the nodes here are so different that not all of them can have one value. A kernel that
gives every node the same, such as the mean, breaks one of the two, except for those in `NOT_TOLD_APART`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from kube_policy_scheduler.builtins import comparing, numbers, texts, times
from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.checking.inference import Inference
from kube_policy_scheduler.lang.checking.scope import Scope
from kube_policy_scheduler.lang.compiling.expressions import Compiler
from kube_policy_scheduler.lang.environment import collect
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.lang.signature import Builtin, Parameter
from kube_policy_scheduler.lang.types import Depends, Info, Kind, Shape
from tests.lang.clusters import NOW, node, pod, signals
from tests.lang.reference import plain

LABELS = ["7", "red", None, "blue-red", "Red", " 2.5 ", "1e3", "n1"]
OTHER = ["red", "red", "x", None, "R", "2.5", "1", "n"]
CPUS = [2, 4, 6, 8, 10, 12, 16, 20]
SIZE = len(LABELS)


def machines() -> Cluster:
    """Eight nodes that differ in all that a builtin could read of them."""
    made = Cluster()
    for row in range(SIZE):
        labels = {key: value for key, value in (("k", LABELS[row]), ("l", OTHER[row])) if value is not None}
        taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if row % 3 == 0 else []
        taints += [{"key": "old", "value": "x", "effect": "PreferNoSchedule"}] * (row % 2)
        made.set_node(
            node(
                f"n{row}",
                zone="abc"[row % 3],
                labels=labels,
                spec={"taints": taints},
                allocatable={"cpu": str(CPUS[row]), "memory": f"{4 + 3 * (row % 5)}Gi", "nvidia.com/gpu": str(row % 4)},
            )
        )
        for number in range(row % 4):
            made.place(pod(made, f"p{row}-{number}", cpu=f"{300 + 200 * row}m", labels={"app": "web"}), f"n{row}")
    return made


def frame_of(cluster: Cluster, rows: list[int] | None = None) -> Frame:
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 5, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}
            ],
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "l", "operator": "In", "values": ["red", "x"]}]}]
            },
        },
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 5,
                    "podAffinityTerm": {
                        "labelSelector": {"matchLabels": {"app": "web"}},
                        "topologyKey": "kubernetes.io/hostname",
                    },
                }
            ]
        },
    }
    wanted = pod(
        cluster,
        "new",
        cpu="2500m",
        labels={"app": "web"},
        requests={"nvidia.com/gpu": "1"},
        spec={"affinity": affinity},
    )
    measured = signals("cpu_usage", {f"n{row}": 10.0 * row + row * row for row in range(SIZE) if row != 5})
    given = {} if rows is None else {"rows": np.array(rows)}
    return Frame(wanted, cluster, NOW, signals=measured, **given)


NUMBERS = (
    "node.allocatable.cpu / pod.request.cpu",
    "node.free.mem / 1Gi",
    "node.allocatable.mem / 1Gi - 7.5",
    'promql("cpu_usage")',
)
TEXTS = ("node.label.k", "node.label.l")
WRITTEN = {
    "query": '"cpu_usage"',
    "by": '"node"',
    "pattern": '"[a-z-]+"',
    "zone": '"Asia/Kathmandu"',
    "separator": '"e"',
}
"""Constants by the name of the parameter; other ones are taken from its kind."""


def argument(parameter: Parameter, at: int, turn: int) -> str:
    takes = parameter.takes
    if parameter.name in WRITTEN and takes.constant:
        return WRITTEN[parameter.name]
    if takes.word:
        return ("cpu", "mem")[(at + turn) % 2]
    if takes.constant and takes.kind is Kind.TEXT:
        return ('"16:00"', '"13:45"')[at % 2]
    if takes.constant:
        return "1min"
    return (TEXTS if takes.kind is Kind.TEXT else NUMBERS)[(at + turn) % (2 if takes.kind is Kind.TEXT else 3)]


def calls(builtin: Builtin) -> list[str]:
    """Return calls with the arguments that it needs, and with more of them, as its signature allows."""
    made = []
    for turn in range(2):
        if builtin.reads_inputs:
            made.append(f"{builtin.name}({NUMBERS[3]}, {2 + turn})")
            continue
        places = [p for p in builtin.parameters if not p.named_only and (p.required or p.variadic)]
        given = [argument(p, at, turn) for at, p in enumerate(places)]
        if any(p.takes.word for p in places if p.variadic):
            given = given[: turn * len(given)]
        made.append(f"{builtin.name}({', '.join(given)})")
    return list(dict.fromkeys(made))


def value_of(text: str, frame: Frame) -> tuple[list[Any], Info]:
    file, found = parse(Source("t.policy", f"let x = {text}"))
    (tree,) = file.statements
    assert isinstance(tree, syntax.Let), found
    inference = Inference(environment())
    value = inference.infer_root(tree.value, Scope("score", scores=True))
    assert not inference.found, "\n".join(map(render, inference.found))
    result = Compiler(environment().pods).compile(value)(frame)
    return [plain(result, value.info, row) for row in range(frame.size)], value.info


ALL = environment().builtins.values()
CALLS = [(builtin, text) for builtin in ALL for text in calls(builtin)]
NOT_TOLD_APART = {
    "claimed_kinds",
    "claimed_least",
    "claimed_most",
    "class_devices",
    "class_devices_free",
    "class_devices_left",
    "image_locality",
    "even_spread",
    "topology_ok",
    "volumes_ok",
    "ports_free",
    "share_room",
}
"""Builtins that give all nodes here one value, for want of claims, shares of devices, images, host ports, volumes and
spread constraints: a kernel of theirs that gives every node the mean would NOT be found.
This list only gets shorter."""


@pytest.mark.parametrize(("builtin", "text"), CALLS, ids=[text for _, text in CALLS])
def test_a_node_has_the_value_that_it_has_alone(builtin: Builtin, text: str) -> None:
    cluster = machines()
    together, info = value_of(text, frame_of(cluster))
    if builtin.depends & Depends.FEASIBLE:
        return
    alone = [value_of(text, frame_of(cluster, [row]))[0][0] for row in range(SIZE)]

    assert (
        together == pytest.approx(alone) if info.type.kind is Kind.NUMBER and None not in alone else together == alone
    )


@pytest.mark.parametrize("builtin", ALL, ids=lambda builtin: builtin.name)
def test_different_nodes_have_different_values(builtin: Builtin) -> None:
    cluster = machines()
    found = [value_of(text, frame_of(cluster)) for text in calls(builtin)]
    different = any(len(set(map(str, values))) > 1 for values, info in found if info.shape is Shape.NODE)

    assert different == (builtin.shape is not Shape.DECISION and builtin.name not in NOT_TOLD_APART)


# --- what each function returns, said once more in plain Python ------------------------------------------------


def absent(function: Callable[..., Any], otherwise: Any) -> Callable[..., Any]:
    return lambda *given: otherwise if None in given else function(*given)


def to_number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\s*[-+]?\d+(\.\d+)?(e\d+)?\s*", text) else None


def scaled(x: float, low: float, high: float) -> float:
    if low == high:
        return 0.0 if x < low else 100.0
    return min(max((x - low) / (high - low), 0.0), 1.0) * 100


MEANING: dict[str, Callable[..., Any]] = {
    "abs": absent(lambda x: -x if x < 0 else x, None),
    "ceil": absent(lambda x: float(-(-x // 1)), None),
    "clamp": absent(lambda x, low, high: sorted((x, low, high))[1] if low <= high else high, None),
    "contains": absent(lambda text, part: part in text, False),
    "endswith": absent(lambda text, end: text[::-1][: len(end)] == end[::-1], False),
    "exp": absent(lambda x: math.e**x, None),
    "floor": absent(lambda x: float(x // 1), None),
    "length": absent(lambda text: float(len(list(text))), None),
    "log": absent(lambda x: math.log2(x) / math.log2(math.e) if x > 0 else None, None),
    "lower": absent(lambda text: "".join(letter.lower() for letter in text), None),
    "matches": absent(lambda text, pattern: re.fullmatch(pattern, text) is not None, False),
    "max": absent(lambda *all_: sorted(all_)[-1], None),
    "min": absent(lambda *all_: sorted(all_)[0], None),
    "number": absent(to_number, None),
    "round": absent(lambda x: math.copysign(abs(x) + 0.5 - (abs(x) + 0.5) % 1, x), None),
    "scale": absent(scaled, None),
    "split": absent(lambda text, mark: tuple(text.split(mark)), ()),
    "sqrt": absent(lambda x: x**0.5 if x >= 0 else None, None),
    "startswith": absent(lambda text, start: text[: len(start)] == start, False),
}
"""By name: from the values of one node to its value, None for missing."""

MOMENT = datetime.fromtimestamp(NOW, ZoneInfo("UTC"))
AT_ONCE: dict[str, Callable[..., Any]] = {
    "now": lambda: NOW,
    "hour": lambda: float(MOMENT.strftime("%H")),
    "weekday": lambda: float(MOMENT.strftime("%u")),
    "between": lambda start, end: (
        (start <= MOMENT.strftime("%H:%M") < end) != (start > end)
        or (start > end and (MOMENT.strftime("%H:%M") >= start or MOMENT.strftime("%H:%M") < end))
    ),
}
"""By name: the value of the decision."""


def normalized(values: list[float | None]) -> list[float | None]:
    known = [value for value in values if value is not None]
    low, high = min(known), max(known)
    return [None if value is None else (value - low) * 100 / (high - low) for value in values]


def ranked(values: list[float | None]) -> list[float | None]:
    order = sorted({value for value in values if value is not None})
    return [None if value is None else order.index(value) * 100 / (len(order) - 1) for value in values]


OVER_NODES = {"normalize": normalized, "rank": ranked}
"""By name: from the values of all nodes to theirs."""
OURS = collect([comparing, numbers, texts, times])[1]


def test_every_function_of_the_language_itself_is_said_in_plain_python() -> None:
    assert OURS.keys() == MEANING.keys() | AT_ONCE.keys() | OVER_NODES.keys(), "add what it returns to MEANING"


def constant(text: str) -> Any:
    return text.strip('"')


@pytest.mark.parametrize("turn", range(4))
@pytest.mark.parametrize("name", sorted(OURS))
def test_each_node_has_the_value_that_plain_python_gives(name: str, turn: int) -> None:
    builtin, frame = OURS[name], frame_of(machines())
    pool = NUMBERS[turn:] + NUMBERS[:turn]
    given = [
        argument(p, at, turn) if p.takes.kind is Kind.TEXT else pool[at]
        for at, p in enumerate(p for p in builtin.parameters if p.required or p.variadic)
    ]
    if turn == 3 and builtin.parameters and builtin.parameters[-1].variadic:
        given += [pool[2], pool[3]]
    got, _ = value_of(f"{name}({', '.join(given)})", frame)
    columns = [[constant(text)] * SIZE if text.startswith('"') else value_of(text, frame)[0] for text in given]
    if name in AT_ONCE:
        expected: list[Any] = [AT_ONCE[name](*(constant(text) for text in given))] * SIZE
    elif name in OVER_NODES:
        expected = OVER_NODES[name](columns[0])
    else:
        expected = [MEANING[name](*row) for row in zip(*columns, strict=True)]

    for row, (mine, theirs) in enumerate(zip(expected, got, strict=True)):
        same = (
            math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-9)
            if isinstance(mine, float) and theirs is not None
            else mine == theirs
        )
        assert same, (name, given, row, mine, theirs)
