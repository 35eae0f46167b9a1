"""What a name means: one that a policy gives, a resource, or one that a missing file may define."""

from __future__ import annotations

import pytest

from tests.lang.texts import codes

CPU = 'metric cpu = promql("node_cpu_usage") default 50\n'


@pytest.mark.parametrize(
    "text",
    [
        "score 100 - cpu + least_allocated(cpu)",
        "filter fits(cpu, mem) and cpu < 80",
        "limit sum(request.cpu) by pod.namespace to 10\nscore least_allocated() - cpu",
    ],
)
def test_a_metric_can_have_the_name_of_a_resource(text: str) -> None:
    assert codes(CPU + text) == []


def test_a_parameter_can_be_a_resource() -> None:
    assert codes('def roomy(cpu) = fits(cpu)\nfilter roomy("nvidia.com/gpu")') == []


@pytest.mark.parametrize(
    "text",
    [
        "filter not busy",
        "score near(node.zone) + spare",
        "filter node.label.disk in disks",
        "filter any(i in images where startswith(i, prefix))",
        "filter count(p in node.pods where p.label.app == name) < most",
        "filter fits(gpu)",
        "limit sum(request.cpu) by key to most",
        "gang by key size members",
        "order by rank_of(pod.label.tier) desc",
        "metric load = promql(query)\nfilter load ?? 0 < 5",
        "hold if now() - start - late > 0s",
        "filter team.name == 3",
    ],
)
def test_a_file_that_does_not_exist_is_the_only_error(text: str) -> None:
    assert codes(f'use "nowhere.policy"\n{text}') == ["P0203"]


def test_a_constant_that_could_not_be_read_is_reported_once() -> None:
    assert codes('let query = "up\nmetric load = promql(query)\nfilter load ?? 0 < 5') == ["P0003"]


def test_what_is_surely_wrong_is_still_reported() -> None:
    assert codes('use "nowhere.policy"\nfilter node.redy and busy') == ["P0203", "P0102"]
