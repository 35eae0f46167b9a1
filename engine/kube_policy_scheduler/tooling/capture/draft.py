"""A decision in the short forms of test files, and fields left out that do not matter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError
from kube_policy_scheduler.tooling.capture.reduce import DecisionSummary, ReducibleInputs, minimised
from kube_policy_scheduler.tooling.cluster_state import stored_objects
from kube_policy_scheduler.tooling.policy_reads import fields
from kube_policy_scheduler.tooling.short_forms import ShortFormError, node_form, node_object, pod_form, pod_object
from kube_policy_scheduler.tooling.snapshot.fields import Json

_EVERY_POD = tuple(
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
    for state in ("not-ready", "unreachable")
)
"""What every pod tolerates for a while: the API server sees to it, and so do tests."""


def short_node(node: Mapping[str, Any], *, reads: Collection[str]) -> Json:
    """Return a node of a fixture in its short form; of what few policies read, only the fields that these `reads`."""
    metadata, status = dict(node.get("metadata") or {}), dict(node.get("status") or {})
    metadata.pop("uid", None)
    status.pop("addresses", None)
    if "node.capacity" not in reads:
        status["allocatable"] = status.get("allocatable") or status.pop("capacity", None) or {}
        status.pop("capacity", None)
    status["conditions"] = [
        {"type": "Ready", "status": str(one.get("status") == "True")}
        if one.get("type") == "Ready" and not ("node.condition_age" in reads and "lastTransitionTime" in one)
        else one
        for one in status.get("conditions") or ()
    ]
    return node_form({"metadata": metadata, "spec": node.get("spec"), "status": status})


def short_pod(pod: Mapping[str, Any], *, scheduler: str) -> Json:
    """Return a pod of a fixture in its short form; `scheduler` is that of pods that name none."""
    spec, status = dict(pod.get("spec") or {}), dict(pod.get("status") or {})
    if spec.get("schedulerName") == scheduler:
        del spec["schedulerName"]
    spec["tolerations"] = [one for one in spec.get("tolerations") or () if one not in _EVERY_POD]
    for key in ("phase", "qosClass"):
        status.pop(key, None)
    return pod_form({"metadata": pod.get("metadata"), "spec": spec, "status": status})


Path: TypeAlias = tuple[str | int, ...]
_FIXED = frozenset({"name", "node", "apiVersion", "kind"})
"""Keys without which a form means nothing."""
_SIZES = frozenset({"cpu", "mem"})
"""Of nodes and of the pod to decide: a test without them may pass, but would be hard to understand."""
_IDENTITY = frozenset({("metadata",), ("metadata", "name"), ("metadata", "namespace")})
_NOWHERE = Document(Source("<capture>", ""), value={}, root=None)
MOST_TRIALS = 4000
"""Of taking forms apart; what is left then may hold more than it has to."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Nodes, pods, and the pod to decide, as in a test file."""

    nodes: tuple[Json, ...]
    placed: tuple[Json, ...]
    pod: Json
    others: tuple[Json, ...]
    """Objects of other kinds, whole: they go into a fixture file."""
    reducible: ReducibleInputs = field(repr=False)
    """Rules, metrics, clock and seed."""
    scheduler: str = ""
    """Of pods that name none."""
    case: str = "captured"
    """The name of the case, which is the pod's uid where it has none."""

    def decided(self) -> DecisionSummary | None:
        """Decide as the tester will; None where the forms make no sense any more."""
        try:
            made = [
                *self.others,
                *(node_object(form) for form in self.nodes),
                *(pod_object(form, name="pod", uid=form["name"]) for form in self.placed),
                pod_object(self.pod, name="pod", uid=self.case),
            ]
            things = stored_objects([FixtureObject(one, _NOWHERE, ()) for one in made], scheduler=self.scheduler)
        except (ShortFormError, DocumentError, LookupError, TypeError, AttributeError):
            return None  # a part was taken out that something else needs
        pod = things.pop()
        reducible = ReducibleInputs.of(
            things, pod, self.reducible.rules, seed=self.reducible.seed, now=self.reducible.now
        )
        reducible = replace(
            reducible.alone(),
            signals=self.reducible.signals,
            trials=self.reducible.trials,
            kubernetes=self.reducible.kubernetes,
        )
        return reducible.verdict()


def draft(reducible: ReducibleInputs, recorded_forms: Callable[[Any], Json], *, scheduler: str, case: str) -> Draft:
    """Return a decision in short forms.

    Args:
        reducible: what is left.
        recorded_forms: from an API object to its fixture form.
        scheduler: of pods that name none.
        case: the name of the case.
    """
    policy = reducible.rules.policy
    reads = fields([policy]) if policy is not None else frozenset[str]()
    return Draft(
        nodes=tuple(short_node(recorded_forms(node), reads=reads) for node in reducible.nodes),
        placed=tuple(short_pod(recorded_forms(pod), scheduler=scheduler) for pod in reducible.placed),
        pod=short_pod(recorded_forms(reducible.pod), scheduler=scheduler),
        others=tuple(recorded_forms(thing) for thing in reducible.others),
        reducible=reducible,
        scheduler=scheduler,
        case=case,
    )


def trimmed(made: Draft, wanted: DecisionSummary, *, progress: Callable[[str], None] = lambda text: None) -> Draft:
    """Return the draft without whatever can go such that it is decided the same."""
    trials = 0

    def same(other: Draft) -> bool:
        nonlocal trials
        if trials >= MOST_TRIALS:
            return False
        trials += 1
        progress(f"taking forms apart: trial {trials}")
        got = other.decided()
        return got is not None and got.repeats(wanted, margin=True, nodes=True)

    for part in ("placed", "nodes"):
        # most nodes, and most pods, lack nothing of the same: try all of them at once
        forms: tuple[Json, ...] = getattr(made, part)
        for path in sorted({path for form in forms for path in _paths(form, fixed=_fixed(part))}, key=_order):
            forms = getattr(made, part)
            less = tuple(_without(form, path) for form in forms)
            if less != forms and same(changed := _replaced(made, part, less)):
                made = changed
    for part in ("pod", "placed", "nodes", "others"):
        made = _each(made, part, same)
    return replace(made, placed=tuple(minimised(made.placed, lambda part: same(replace(made, placed=tuple(part))))))


def _each(made: Draft, part: str, same: Callable[[Draft], bool]) -> Draft:
    forms: Sequence[Json] = (made.pod,) if part == "pod" else getattr(made, part)
    for at in range(len(forms)):
        for path in sorted(_paths(forms[at], fixed=_fixed(part)), key=_order):
            if part == "others" and path in _IDENTITY:
                continue
            current: list[Json] = [made.pod] if part == "pod" else list(getattr(made, part))
            less = _without(current[at], path)
            if less == current[at]:
                continue  # it went with something around it
            current[at] = less
            changed = replace(made, pod=less) if part == "pod" else _replaced(made, part, tuple(current))
            if same(changed):
                made = changed
    return made


def _replaced(made: Draft, part: str, forms: tuple[Json, ...]) -> Draft:
    match part:
        case "nodes":
            return replace(made, nodes=forms)
        case "placed":
            return replace(made, placed=forms)
        case _:
            return replace(made, others=forms)


def _order(path: Path) -> tuple[int, tuple[str, ...]]:
    """Whole parts before what is in them; of a list the last first, as removing moves what follows."""
    return len(path), tuple(f"{9999 - step:04}" if isinstance(step, int) else step for step in path)


def _fixed(part: str) -> frozenset[str]:
    return _FIXED | _SIZES if part in ("nodes", "pod") else _FIXED


def _paths(value: Any, at: Path = (), *, fixed: frozenset[str]) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, item in value.items():
            if at or key not in fixed:
                yield (*at, key)
                yield from _paths(item, (*at, key), fixed=fixed)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield (*at, index)
            yield from _paths(item, (*at, index), fixed=fixed)


def _without(value: Any, path: Path) -> Any:
    """Return a copy without what is at a path, and without the parts that are empty then."""
    first, *rest = path
    if isinstance(value, dict) and first in value:
        if not rest:
            return {key: item for key, item in value.items() if key != first}
        inner = _without(value[first], tuple(rest))
        return {key: (inner if key == first else item) for key, item in value.items() if key != first or inner}
    if isinstance(value, list) and isinstance(first, int) and first < len(value):
        if not rest:
            return [item for index, item in enumerate(value) if index != first]
        return [_without(item, tuple(rest)) if index == first else item for index, item in enumerate(value)]
    return value
