"""The policies that are shipped: each alone without a warning, formatted, and with tests of its own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.lang.formatting.format import Formatted, format_source
from kube_policy_scheduler.policy.policy_set import load

ROOT = Path(__file__).parents[2] / "policies"
FILES = sorted(ROOT.glob("**/*.policy"))


def test_there_is_a_policy_for_what_operators_have() -> None:
    assert len(FILES) >= 16


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_policy_loads_without_a_warning(file: Path) -> None:
    loaded = load([Source(file.name, file.read_text(encoding="utf-8"))])

    assert loaded.diagnostics == (), "\n".join(map(render, loaded.diagnostics))
    assert loaded.policy_set is not None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_policy_is_formatted_and_has_tests(file: Path) -> None:
    text = file.read_text(encoding="utf-8")

    assert format_source(Source(file.name, text)) == Formatted(text)
    assert file.with_suffix(".test.yaml").exists()


@pytest.mark.long
def test_a_hundred_policies_of_thirty_statements_are_loaded_soon() -> None:
    lines = [
        "filter node.ready and fits(cpu, mem)",
        'score 2 * (100 - promql("cpu_usage") ?? 50)',
        "score -1 if label node=hello",
        "spread by pod.label.tenant",
        "filter node.used_fraction.cpu < {n}%",
        'require pod.label.tenant else "no tenant"',
        "filter count(p in node.pods where p.label.tenant == pod.label.tenant) < {n}",
        "score clamp(node.free.cpu, 0, {n}) weight 2",
        "filter label zone in (a, b) or label disk=ssd",
        "limit sum(request.cpu) by pod.label.tenant to {n}",
    ]
    policies = [
        Source(
            f"p{number}.policy",
            f'for pods where pod.namespace == "n{number}"\n' + "\n".join(lines * 3).replace("{n}", str(number + 1)),
        )
        for number in range(100)
    ]
    load(policies[:1])
    started = time.process_time()

    assert load(policies).policy_set is not None
    # one second is the aim and is kept on a quiet machine, lint aside; what else runs here costs processor time too
    assert time.process_time() - started < 20
