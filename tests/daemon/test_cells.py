"""Cells: the nodes and pods that a scheduler asks the API server for."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from kube_policy_scheduler.adapters.kube.reflector import Selector
from kube_policy_scheduler.adapters.kube.resources import NODES, PODS
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.daemon.watching import resources


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ({}, {}),
        ({"node_selector": "cell=3"}, {"nodes": "cell=3"}),
        (
            {"node_selector": "cell=3", "pod_selector": "cell in (3, all)"},
            {"nodes": "cell=3", "pods": "cell in (3, all)"},
        ),
    ],
)
def test_nodes_and_pods_are_selected_by_their_labels(
    selectors: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Any, str]] = []

    def reflector(transport: Transport, resource: Any, *, selector: Selector, **_: object) -> Mock:
        made.append((resource, selector.labels))
        return Mock()

    monkeypatch.setattr(resources, "Reflector", reflector)
    transport: Any = None

    resources.reflectors(transport, random=Random(0), on_malformed=lambda broken: None, **selectors)

    assert {kind.plural: selector for kind, selector in made if selector} == expected
    assert [kind for kind, _ in made][:2] == [NODES, PODS]
