"""Selectors of devices in CEL: answers, errors in kube-scheduler's words, and bounds on what a selector may cost."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler import remembered
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices import device_selectors
from kube_policy_scheduler.cluster.devices.attribute_references import values
from kube_policy_scheduler.cluster.devices.device_selectors import (
    MAX_COST,
    MAX_LENGTH,
    Match,
    SelectorRun,
    compile_selector,
    device_variables,
)
from kube_policy_scheduler.cluster.devices.resource_slices import SliceInfo
from kube_policy_scheduler.cluster.search_work import Work

DRIVER = "gpu.example.com"
ATTRIBUTES = {
    "model": {"string": "h100"},
    "index": {"int": 2},
    "healthy": {"bool": True},
    "firmware": {"version": "1.10.0-rc.1"},
    "resource.kubernetes.io/pcieRoot": {"string": "pci0000:0"},
}
LISTS = {
    "links": {"ints": [1, 3, 8]},
    "modes": {"strings": ["mig", "mps"]},
    "drivers": {"versions": ["1.2.3", "2.0.0"]},
    "healths": {"bools": [True, False]},
}
CAPACITY = {"memory": {"value": "40Gi"}, "cores": {"value": "108"}}


def device(name: str = "gpu-0", **attributes: object) -> objects.Device:
    given = {"name": name, "attributes": {**ATTRIBUTES, **attributes}, "capacity": CAPACITY}
    return msgspec.convert(given, objects.Device)


def ask(expression: str, about: objects.Device | None = None) -> Match:
    selector = compile_selector(expression)
    assert not selector.error
    return selector.match(DRIVER, about or device(**LISTS))


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        'device.attributes["gpu.example.com"].model in ["a100", "h100"]',
        'device.attributes["resource.kubernetes.io"].pcieRoot.startsWith("pci")',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("42949672960")) == 0',
        'device.capacity["gpu.example.com"].cores.sub(quantity("1")).isLessThan(quantity("108"))',
        'device.attributes["gpu.example.com"].firmware.isLessThan(semver("1.10.0"))',
        'device.attributes["gpu.example.com"].firmware.isGreaterThan(semver("1.9.9"))',
        '!has(device.attributes["other.example.com"].model)',
        '!("other.example.com" in device.attributes)',
        'device.attributes["gpu.example.com"].?nosuch.orValue("x") == "x"',
        'cel.bind(a, device.attributes["gpu.example.com"], a.index == 2.0 && a.healthy)',
        'device.attributes["gpu.example.com"].nosuch == 1 || true',
        'device.attributes.exists(d, d == "resource.kubernetes.io")',
        '{"a": 1, "b": 2}.transformList(k, v, v).sum() == 3',
        'cel.bind(d, device, d.driver == "gpu.example.com")',
        "[1, 2, 3].map(n, n * 2).filter(n, n > 2) == [4, 6]",
        '"%s has %d" .format([device.attributes["gpu.example.com"].model, 8]) == "h100 has 8"',
        "!device.allowMultipleAllocations",
        '3 in device.attributes["gpu.example.com"].links',
        'device.attributes["gpu.example.com"].links.exists(link, link > 7)',
        'size(device.attributes["gpu.example.com"].links) == 3 && device.attributes["gpu.example.com"].links[0] == 1',
        'device.attributes["gpu.example.com"].links.includes(8)',
        '!device.attributes["gpu.example.com"].links.includes(2)',
        'device.attributes["gpu.example.com"].model.includes("h100")',
        'device.attributes["gpu.example.com"].modes.all(mode, mode.startsWith("m"))',
        'device.attributes["gpu.example.com"].drivers.exists(v, v.isLessThan(semver("2.0.0")))',
        'device.attributes["gpu.example.com"].healths == [true, false]',
    ],
)
def test_it_matches(expression: str) -> None:
    assert ask(expression) == Match(True, "", ask(expression).cost)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ('device.attributes["gpu.example.com"].nosuch == 1', "no such key: nosuch"),
        ('device.attributes["gpu.example.com"].model > 3', "no such overload"),
        ('device.attributes["gpu.example.com"].index.upperAscii() == ""', "no such overload: upperAscii(int)"),
        ('device.attributes["gpu.example.com"].index / 0 == 1', "division by zero"),
        ('device.attributes["gpu.example.com"].index + 9223372036854775807 > 0', "integer overflow"),
        ('semver("1.2").major() == 1', "No Major.Minor.Patch elements found"),
        ("[1][3] == 1", "index out of bounds: 3"),
        ('device.attributes["gpu.example.com"].links > 3', "no such overload"),
        (
            "[0].map(i, lists.range(49))[0].includes(99)",
            "'includes' function cannot be applied to lists longer than 48 values",
        ),
        (
            'device.attributes["gpu.example.com"].model',
            "CEL result of type string could not be converted to bool:"
            " unsupported native conversion from string to 'bool'",
        ),
    ],
)
def test_an_error_has_the_words_of_kube_scheduler(expression: str, error: str) -> None:
    assert ask(expression).error == f"CEL runtime error: {error}"


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("device.drivr == 1", "ERROR: <input>:1:7: undefined field 'drivr'"),
        ("device == 1", "found no matching overload for '_==_' applied to '(kubernetes.DRADevice, int)'"),
        ("size(device) > 0", "found no matching overload for 'size' applied to '(kubernetes.DRADevice)'"),
        ("device.attributes.a", "must evaluate to bool or the unknown type, not map(string, dyn)"),
        ("device.driver == 1", "found no matching overload for '_==_' applied to '(string, int)'"),
        ("1 +", "ERROR: <input>:1:"),
        ("1 + 1", "must evaluate to bool or the unknown type, not int"),
        ('["a", 1] == []', "expected type 'string' but found 'int'"),
        (f'"{"x" * MAX_LENGTH}" == ""', "longer than"),
        ("(" * 500 + "true" + ")" * 500, "recursion limit"),
    ],
)
def test_an_invalid_selector_is_reported(expression: str, error: str) -> None:
    assert error in compile_selector(expression).error


def test_an_attribute_that_cannot_be_read_ends_every_selector() -> None:
    spec = {"driver": DRIVER, "devices": [{"name": "a", "attributes": {"firmware": {"version": "one"}}}]}
    info = SliceInfo(msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, objects.ResourceSlice))

    match = info.devices[0].match(compile_selector("true"))

    assert match.error == (
        "CEL runtime error: attribute firmware: parse semantic version: No Major.Minor.Patch elements found"
    )


# --- hostile ---------------------------------------------------------------------------------------------


def doubling(times: int) -> str:
    expression = f"x{times}.size() > 0"
    for step in range(times, 0, -1):
        expression = f"cel.bind(x{step}, x{step - 1} + x{step - 1}, {expression})"
    return f"cel.bind(x0, device.driver, {expression})"


def nested(depth: int) -> str:
    expression = "true"
    for step in range(depth):
        expression = f"[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(n{step}, {expression})"
    return expression


@pytest.mark.parametrize("expression", [doubling(20), doubling(26), nested(6), nested(20)])
def test_the_cost_of_a_selector_is_bounded(expression: str) -> None:
    match = ask(expression)

    assert match.error == "CEL runtime error: operation cancelled: actual cost limit exceeded"
    assert match.cost < 2 * MAX_COST


def test_an_error_in_a_branch_does_not_hide_that_the_limit_is_exceeded() -> None:
    assert "cost limit" in ask(f"{nested(8)} || true").error


NESTED = [
    '[1, 2, 3].all(a, [1, 2, 3].exists(b, [a, b].all(c, c + device.attributes["gpu.example.com"].index > 4)))',
    "[[1, 2], [3]].map(list, list.map(n, n * 2).sum()).filter(n, n > 5) == [6, 6]",
    "cel.bind(x, [1, 2, 3].map(n, n + 1), [x, x].exists(list, list.all(n, n in x)) && x.sum() == 9)",
    '[1, 2].exists(n, [n].all(m, device.attributes["gpu.example.com"].nosuch == m)) || [1].all(n, n == 1)',
    '{"a": 1, "b": 2}.all(k, [1, 2].exists(v, v == {"a": 1, "b": 2}[k]))',
    "[0].all(n, [1, 2].map(m, m / n).size() > 0)",
    nested(2),
]


@pytest.mark.parametrize("expression", NESTED)
@given(piece=st.sampled_from([0, 1, 3, 20]), more=st.integers(0, 5))
def test_an_evaluation_that_pauses_has_the_result_of_one_that_does_not(expression: str, piece: int, more: int) -> None:
    selector = compile_selector(expression)
    variables = device_variables(DRIVER, device())
    assert not isinstance(variables, str)
    evaluation = SelectorRun(selector, variables)

    found = None
    while found is None:
        found = evaluation.go_on(Work(piece + more))

    assert found == selector.matches(variables)


def test_an_evaluation_pauses_when_its_work_is_done() -> None:
    evaluation = SelectorRun(compile_selector(nested(6)), device_variables(DRIVER, device()))
    taken = []
    while True:
        work = Work(1_000)
        found = evaluation.go_on(work)
        taken.append(1_000 - work.left_now)
        if found is not None:
            break

    assert len(taken) > 50
    assert max(taken) < 1_100


# --- what is asked once -----------------------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from(["model", "uuid", "index"]), st.sampled_from(["a", "h100", "z"])))
def test_devices_equal_in_what_a_selector_reads_get_the_answer_of_a_fresh_evaluation(given: dict[str, str]) -> None:
    about = device(**{name: {"string": value} for name, value in given.items()})
    expression = (
        'device.attributes["gpu.example.com"].model == "h100" && size(device.attributes["gpu.example.com"]) > 2'
    )
    remembered.forget()
    fresh = ask(expression, about)

    ask(expression, device())

    assert ask(expression, about) == fresh


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["gpu.example.com"].model == "{number}"',
        'device.attributes["gpu.example.com"].size() > {number}',
        'string(device.attributes["gpu.example.com"].model).replace("", "{number}" + "x", -1).matches("[")',
    ],
    ids=["by an attribute", "by all attributes", "errors"],
)
def test_results_of_all_selectors_together_are_bounded_by_their_bytes(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered.forget()
    monkeypatch.setattr(device_selectors._known.kept_bytes, "most", 200_000)
    devices = [device(model={"string": f"{at}{'m' * 60}"}, own={"string": "o" * 64}) for at in range(20)]
    compile_selector(expression.replace("{number}", "40")).match(DRIVER, devices[0])  # what is made once
    tracemalloc.start()
    try:
        selectors = [compile_selector(expression.replace("{number}", str(number))) for number in range(40)]
        before = tracemalloc.get_traced_memory()[0]
        for selector in selectors:
            for one in devices:
                selector.match(DRIVER, one)
        assert tracemalloc.get_traced_memory()[0] - before < 300_000
        assert len(device_selectors._known) > 50
    finally:
        tracemalloc.stop()
        remembered.forget()


@pytest.mark.long
def test_compiled_expressions_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_selectors._compiled.kept_bytes, "most", 500_000)
    each = " && ".join(f'device.driver == "d{number}"' for number in range(300))
    compile_selector(each)  # what the first one imports and makes for all is not measured
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(15):
            assert compile_selector(f'{each} && device.driver != "{number}"').error == ""
        assert tracemalloc.get_traced_memory()[0] - before < 700_000
    finally:
        tracemalloc.stop()


def test_attributes_that_a_selector_does_not_read_make_no_difference_to_it() -> None:
    selector = compile_selector('has(device.attributes["gpu.example.com"].model)')

    keys = {values(selector.reads, DRIVER, device(uuid={"string": str(number)})) for number in range(8)}

    assert len(keys) == 1
