"""What completion offers at a place compiles there, and what compiles is offered: all fields and all functions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.editor.cluster_words import ClusterWords
from kube_policy_scheduler.editor.completion import ItemKind, complete
from kube_policy_scheduler.editor.possible import call_of
from kube_policy_scheduler.lang import codes
from kube_policy_scheduler.lang.environment import Key
from kube_policy_scheduler.lang.load import check_sources
from tests.editor.cursor import at_cursor

ENVIRONMENT = environment()
KEYS = {Key.RESOURCE: "cpu", Key.LABEL: "app", Key.ANNOTATION: "note", Key.CONDITION: "Ready"}
NOT_HERE = {codes.UNSTABLE.id, "P0101", "P0102", "P0103", "P0108", "P0109", "P0114", "P0120"}
"""Changes later, unknown, of nodes where none is known, compared where nothing is, no constant, no key."""
PLACES = {
    "filter |": ("node", "pod"),
    "filter node.ready if |": ("node", "pod"),
    "score |": ("node", "pod"),
    "score 1 if |": ("node", "pod"),
    "score if | then 1 else 0": ("node", "pod"),
    "require |": ("node", "pod"),
    "hold if |": ("node", "pod"),
    "for pods where |": ("node", "pod"),
    "canary of x for pods where |": ("node", "pod"),
    "order by |": ("node", "pod"),
    "spread by |": ("node", "pod"),
    "spread by pod.namespace over zone max skew 1 if |": ("node", "pod"),
    "pack by |": ("node", "pod"),
    "limit count() by | to 4": ("node", "pod"),
    "limit count() to |": ("node", "pod"),
    "gang by | size 2": ("node", "pod"),
    "gang by pod.namespace size |": ("node", "pod"),
    "preempt if |": ("node", "pod"),
    "preempt if true evict where |": ("victim", "pod"),
    "reclaim if |": ("node", "pod"),
    "reclaim evict where |": ("victim",),
    "rebalance if |": ("node", "pod"),
    "backfill lasts |": ("node", "pod"),
    "queue a by |": ("node", "pod"),
    "queue a for pods where |": ("node", "pod"),
    "devices by |": ("node", "pod"),
    "domains by |": ("node", "pod"),
    "let x = |": ("node", "pod"),
    'metric m = promql("up") by rack as |': ("node", "pod"),
    "filter count(p in node.pods where |) > 1": ("p", "pod", "node"),
    "score sum(p.request.cpu for p in node.pods where |)": ("p", "pod", "node"),
    "filter any(p in zone.pods where p.ready and |)": ("p", "pod", "node"),
    "score sum(n.free.cpu for n in cluster.nodes where |)": ("n", "pod"),
}
SUBJECTS = {"node": "node", "n": "node"}


def compiles(place: str, value: str) -> bool:
    text = place.replace("|", value)
    start, end = place.index("|"), place.index("|") + len(value)
    found = check_sources([Source("test.policy", text)], ENVIRONMENT).diagnostics
    return not any(each.code in NOT_HERE and start <= each.span.start and each.span.end <= end for each in found)


def written(place: str, root: str) -> Iterator[tuple[str, bool]]:
    """Yield each field behind a root as a policy writes it, and whether completion leads to it."""
    subject = SUBJECTS.get(root, "pod")
    offered: dict[str, set[str]] = {}
    for field in ENVIRONMENT.fields.values():
        if not field.path.startswith(f"{subject}."):
            continue
        path = f"{root}.{field.path.partition('.')[2]}"
        steps = path.split(".")
        leads = True
        for number in range(1, len(steps)):
            before = ".".join(steps[:number])
            if before not in offered:
                items = complete(*at_cursor(place.replace("|", f"{before}.|")), ClusterWords())
                offered[before] = {item.label for item in items if item.kind is ItemKind.FIELD}
            leads = leads and steps[number] in offered[before]
        yield path + (f".{KEYS[field.key]}" if field.key is not None else ""), leads


@pytest.mark.parametrize(("place", "roots"), PLACES.items(), ids=PLACES)
def test_the_fields_that_are_offered_are_those_that_compile(place: str, roots: tuple[str, ...]) -> None:
    for root in roots:
        for value, is_offered in written(place, root):
            assert is_offered == compiles(place, value), value


@pytest.mark.parametrize("place", PLACES)
def test_the_functions_and_roots_that_are_offered_are_those_that_compile(place: str) -> None:
    items = {item.label: item for item in complete(*at_cursor(place), ClusterWords())}
    functions = {name for name, item in items.items() if item.kind is ItemKind.FUNCTION}

    for name, builtin in ENVIRONMENT.builtins.items():
        assert (name in functions) == compiles(place, call_of(builtin)), name
    for root in ("node", "pod"):
        if root in items:
            assert any(leads for _, leads in written(place, root)), root


@pytest.mark.parametrize("builtin", ENVIRONMENT.builtins.values(), ids=lambda builtin: builtin.name)
def test_the_calls_that_are_tried_are_right(builtin: object) -> None:
    """A call with wrong arguments would say nothing about the place."""
    texts = [f"score {call_of(builtin)}", f"devices by {call_of(builtin)}"]  # type: ignore[arg-type]
    found = [check_sources([Source("test.policy", text)], ENVIRONMENT).diagnostics for text in texts]

    assert any(not {each.code for each in one} & {"P0107", "P0110", "P0103"} for one in found), found
