"""Calls of every builtin, made from its signature, against plain Python on one node at a time.

Two laws hold for each of them: the value of a node is the same whichever other nodes are looked at (unless the
builtin compares nodes), and the nodes here are so different that not all of them can have one value. A kernel that
gives every node the same, such as the mean, breaks one of the two.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kube_policy_scheduler.builtins import comparing, numbers, texts, times
from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.checking.inference import Inference, Scope
from kube_policy_scheduler.lang.compiling.expressions import Compiler
from kube_policy_scheduler.lang.environment import collect
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.lang.signature import Builtin, Parameter, Receives
from kube_policy_scheduler.lang.types import Depends, Info, Kind, Shape
from tests.builtins import machines as world
from tests.builtins.machines import SIZE, frame_of, machines
from tests.lang.clusters import NOW
from tests.lang.reference import plain

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
    "resource": '"amd.com/gpu"',
    "device_class": '"gpu"',
    "name": '"memory"',
    "attribute": '"gpu/numa"',
    "storage_class": '"fast"',
}
"""Constants by the name of the parameter; other ones are taken from its kind."""


READS = {
    "duration": "node.annotation.duration",
    "time": "node.annotation.time",
    "claimed_text": '"model"',
}
"""Texts for functions that read only some, by the name of the function."""


def argument(builtin: Builtin, parameter: Parameter, at: int, turn: int) -> str:
    takes = parameter.takes
    if builtin.name in READS:
        return READS[builtin.name]
    if parameter.name in WRITTEN and takes.constant:
        return WRITTEN[parameter.name]
    if takes.word:
        return ("cpu", "mem")[(at + turn) % 2]
    if takes.constant and takes.kind is Kind.TEXT:
        return ('"16:00"', '"13:45"')[at % 2]
    if takes.constant:
        return "1min"
    if takes.kind is Kind.TEXT:
        return TEXTS[(at + turn) % 2]
    return NUMBERS[(at + 2 * turn) % 3]


def calls(builtin: Builtin) -> list[str]:
    """Return calls with the arguments that it needs, and with more of them, as its signature allows."""
    made = []
    for turn in range(2):
        if builtin.receives is Receives.INPUTS:
            made.append(f"{builtin.name}({NUMBERS[3]}, {2 + turn})")
            continue
        places = [p for p in builtin.parameters if not p.named_only and (turn or p.required or p.variadic)]
        given = [argument(builtin, p, at, turn) for at, p in enumerate(places)]
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


ALL = [builtin for builtin in environment().builtins.values() if not builtin.depends & Depends.DEVICE]
"""Those of one device have tests of their own, `test_one_device.py`."""
CALLS = [(builtin, text) for builtin in ALL for text in calls(builtin)]


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

    assert different == (builtin.shape is not Shape.DECISION)


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
    "duration": lambda text: {
        "90s": 90.0,
        "1h30m": 5400.0,
        "10min": 600.0,
        "7d": 604800.0,
        "1.5h": 5400.0,
        "2w": 1209600.0,
    }.get(text),
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
    "quantity": lambda text: {"7": 7.0, "2.5": 2.5, "1e3": 1000.0, "1": 1.0}.get(text),
    "round": absent(lambda x: math.copysign(abs(x) + 0.5 - (abs(x) + 0.5) % 1, x), None),
    "scale": absent(scaled, None),
    "split": absent(lambda text, mark: tuple(text.split(mark)), ()),
    "sqrt": absent(lambda x: x**0.5 if x >= 0 else None, None),
    "startswith": absent(lambda text, start: text[: len(start)] == start, False),
    "time": lambda text: (
        None if text in (None, "soon", "12") else 1795305600.0 if text == "2026-11-22" else 1795351980.0
    ),
    "version": lambda text: text if text in ("7", " 2.5 ", "1e3", "2.5", "1") else None,
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


def test_every_function_of_the_language_has_a_plain_python_reference() -> None:
    assert OURS.keys() == MEANING.keys() | AT_ONCE.keys() | OVER_NODES.keys(), "add what it returns to MEANING"


def constant(text: str) -> Any:
    return text.strip('"')


@pytest.mark.parametrize("turn", range(4))
@pytest.mark.parametrize("name", sorted(OURS))
def test_each_node_has_the_value_that_plain_python_gives(name: str, turn: int) -> None:
    builtin, frame = OURS[name], frame_of(machines())
    pool = NUMBERS[turn:] + NUMBERS[:turn]
    given = [
        argument(builtin, p, at, turn) if p.takes.kind is Kind.TEXT else pool[at]
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


# --- what Kubernetes' rules and the devices give, said once more in plain Python ----------------------------------


def in_zone(row: int) -> int:
    """Return how many pods like the wanted one are in the zone of a row."""
    return sum(count for count, zone in zip(world.WEB_PODS, world.ZONES, strict=True) if zone == world.ZONES[row])


def evenness(row: int) -> float:
    """Return kube-scheduler's score of a soft constraint over three zones, normalized."""
    raw = [math.floor(in_zone(each) * math.log(3 + 2) + world.MAX_SKEW - 1 + 0.5) for each in range(SIZE)]
    return float(100 * (max(raw) + min(raw) - raw[row]) // max(raw))


def locality(row: int) -> float:
    """Return kube-scheduler's score of images: between 23 MiB and 1000 MiB for each of two containers."""
    found = sum(size * world.MEBIBYTE * len(on) // SIZE for size, on in world.IMAGES.values() if row in on)
    low, high = 23 * world.MEBIBYTE, 2 * 1000 * world.MEBIBYTE
    return float(100 * (min(max(found, low), high) - low) // (high - low))


def fullest(row: int) -> float | None:
    fitting = [free for free in world.SHARED_DEVICES[row] if free >= world.SHARE]
    return min(fitting) / 1000 if fitting else None


def free_devices(row: int) -> list[tuple[int, int, bool]]:
    return [device for device in world.CLAIM_DEVICES[row] if not device[2]]


def of_claimed(measure: Callable[[list[tuple[int, int, bool]]], Any]) -> Callable[[int], Any]:
    """Return a measure of the first free devices of a row, None where the claim can't have as many as it wants."""

    def value(row: int) -> Any:
        free = free_devices(row)[: world.CLAIMED]
        return measure(free) if len(free) == world.CLAIMED else None

    return value


def left(row: int) -> float:
    free = len(free_devices(row))
    return float(free - world.CLAIMED if free >= world.CLAIMED else free)


def largest_group(devices: list[tuple[int, int, bool]]) -> float:
    return float(max(Counter(numa for _, numa, _ in devices).values(), default=0))


def group_left(row: int) -> float:
    free = free_devices(row)
    return largest_group(free[world.CLAIMED :] if len(free) >= world.CLAIMED else free)


def model(devices: list[tuple[int, int, bool]]) -> str | None:
    found = {world.model_of(memory) for memory, _, _ in devices}
    return found.pop() if len(found) == 1 else None


def storage_used(row: int) -> int:
    room = world.VOLUME_ROOM.get(world.ZONES[row], 0)
    return world.NEW_VOLUME * 100 // room if room else 100


BY_ROW: dict[str, Callable[[int], Any]] = {
    'claimed_kinds("gpu/numa")': of_claimed(lambda devices: float(len({numa for _, numa, _ in devices}))),
    'claimed_least("memory")': of_claimed(lambda devices: float(min(memory for memory, _, _ in devices))),
    'claimed_most("memory")': of_claimed(lambda devices: float(max(memory for memory, _, _ in devices))),
    'class_devices("gpu")': lambda row: float(len(world.CLAIM_DEVICES[row])),
    'class_devices_free("gpu")': lambda row: float(len(free_devices(row))),
    'class_devices_left("gpu")': left,
    'class_devices_together("gpu", "numa")': lambda row: largest_group(free_devices(row)),
    'class_devices_together_left("gpu", "numa")': group_left,
    'claimed_text("model")': of_claimed(model),
    'device_room("amd.com/gpu")': lambda row: sum(world.SHARED_DEVICES[row]) / 1000,
    'devices("amd.com/gpu")': lambda row: float(len(world.SHARED_DEVICES[row])),
    'devices_free("amd.com/gpu")': lambda row: float(world.SHARED_DEVICES[row].count(1000)),
    "even_spread()": evenness,
    "fits_numa(cpu)": lambda row: True if world.NUMA_MILLIS[row] else None,  # the pod is Burstable: nothing is pinned
    "image_locality()": locality,
    "ports_free()": lambda row: not world.PORT_TAKEN[row],
    'share_room("amd.com/gpu")': fullest,
    "storage_preference()": lambda row: 100.0 - storage_used(row),
    'storage_preference("0:0, 50:10 100:10")': lambda row: float(min(100 * storage_used(row) // 50, 100)),
    "topology_ok()": lambda row: in_zone(row) + 1 - min(map(in_zone, range(SIZE))) <= world.MAX_SKEW,
    'volume_room("fast")': lambda row: (
        float(world.VOLUME_ROOM[world.ZONES[row]] << 30) if world.ZONES[row] in world.VOLUME_ROOM else None
    ),
    "volumes_ok()": lambda row: world.ZONES[row] in world.VOLUME_ZONES,
}
"""By the call: from a row of the machines to its value, None for missing."""


@pytest.mark.parametrize("text", BY_ROW)
def test_each_node_has_the_value_that_follows_from_what_it_has(text: str) -> None:
    got, _ = value_of(text, frame_of(machines()))
    expected = [BY_ROW[text](row) for row in range(SIZE)]

    assert len(set(map(str, expected))) > 1, "the machines do not tell nodes apart"
    assert got == expected
