"""No policy can take more than its share: sizes, depths and costs are bounded when it is checked."""

from __future__ import annotations

import time

import pytest

from tests.lang.texts import codes

EXPONENTIAL = "\n".join(
    ["def f0(x) = x + x", *(f"def f{i + 1}(x) = f{i}(f{i}(x))" for i in range(20)), "score f20(node.free.cpu)"]
)


@pytest.mark.parametrize(
    "text",
    [
        EXPONENTIAL,
        "\n".join(["let a0 = node.free.cpu", *(f"let a{i + 1} = a{i} * a{i}" for i in range(40)), "score a40"]),
        "\n".join(["let a0 = node.free.cpu", *(f"let a{i + 1} = a{i} + 1" for i in range(400)), "score a400"]),
        "\n".join(f"score {' + '.join(['node.free.cpu'] * 60)} weight {i + 1}" for i in range(200)),
    ],
    ids=["calls of calls", "names used twice", "a chain of names", "many large scores"],
)
def test_an_expression_that_grows_without_measure_is_refused_soon(text: str) -> None:
    started = time.process_time()

    assert "P0115" in codes(text)
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    "text",
    [
        "filter " + "not " * 200 + "node.ready",
        "score " + "-" * 200 + "1",
        "score " + " + ".join(["1"] * 300),
        "score " + "(" * 50 + "1" + ")" * 50,
        "score " + "if true then 1 else " * 150 + "2",
        "score " + "x" * 20_000,
    ],
    ids=["not", "minus", "plus", "brackets", "if", "a long name"],
)
def test_what_is_nested_too_deep_or_too_long_is_refused(text: str) -> None:
    assert "P0002" in codes(text)


def test_a_large_but_reasonable_policy_is_taken() -> None:
    text = "\n".join(f'score {i} if node.label.kind == "k{i}" and node.free.cpu > {i}' for i in range(300))

    assert [code for code in codes(text) if code < "P03"] == []
