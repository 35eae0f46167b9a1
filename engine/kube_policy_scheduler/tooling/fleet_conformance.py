"""Conformance cases of a fleet: a recorded binding and its clusters, decided here, against what Karmada said.

A case is a line `{"name": str, "binding": {...}, "clusters": [...], "want": {...}}`, perhaps with `featureGates` and
`enableEmptyWorkloadPropagation`. `want` has the `reason` of the condition, the `clusters` that the object has then,
the `affinity` term by which it was placed, and `messages`, any of which is right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from kube_policy_scheduler.fleet.karmada import objects, reading
from kube_policy_scheduler.fleet.model import Fleet, Outcome, Reason
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.tooling.cluster_state import without_nulls
from kube_policy_scheduler.tooling.differences import Difference

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")
_NUMBERED = re.compile(r"(.+)-\d{3}")


class FleetCaseError(ValueError):
    """A case holds something that is not an object of Karmada."""


def is_case(line: Mapping[str, Any]) -> bool:
    """Return whether a line is a case of a fleet."""
    return isinstance(line.get("binding"), dict) and isinstance(line.get("want"), dict)


def family(name: str) -> str:
    """Return the family of a case: its name without the number, `examples` for those that have no number."""
    numbered = _NUMBERED.fullmatch(name)
    return numbered[1] if numbered is not None else "examples"


def compare(case: Mapping[str, Any]) -> list[Difference]:
    """Decide a case and return in what the answer differs.

    Raises:
        FleetCaseError: the case holds something that is not an object of Karmada.
    """
    want, outcome = case["want"], decide(case)
    found = [Difference("reason", want.get("reason"), outcome.reason.value)]
    wanted, got = _wanted_targets(want.get("clusters") or ()), _targets(outcome)
    found += [Difference(f"clusters/{name}", wanted.get(name), got.get(name)) for name in sorted(wanted | got)]
    if "affinity" in want and want.get("reason") == Reason.SUCCESS.value:
        found.append(Difference("affinity", want["affinity"], outcome.term))
    messages = want.get("messages") or ()
    if messages and outcome.message not in messages:
        found.append(Difference("message", messages[0], outcome.message))
    return [each for each in found if each.want != each.got]


def decide(case: Mapping[str, Any]) -> Outcome:
    """Return what is decided about a case.

    Raises:
        FleetCaseError: the case holds something that is not an object of Karmada.
    """
    clusters = [reading.cluster(_read(each, objects.KarmadaCluster, "clusters")) for each in case.get("clusters") or ()]
    fleet = Fleet(
        tuple(sorted(clusters, key=lambda each: each.name)),
        features=frozenset(gate for gate, is_on in (case.get("featureGates") or {}).items() if is_on),
        keep_empty=bool(case.get("enableEmptyWorkloadPropagation")),
    )
    try:
        workload = reading.workload(_read(case["binding"], objects.ResourceBinding, "binding"))
    except reading.BindingError as error:
        raise FleetCaseError(f"binding: {error}") from error
    return place(workload, fleet)


def _read(written: Any, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(without_nulls(written), kind)
    except msgspec.ValidationError as error:
        raise FleetCaseError(f"{where}: {error}") from error


def _targets(outcome: Outcome) -> Json:
    shared = {each.name: each.replicas for each in outcome.components}
    return {name: _target(count, shared) for name, count in outcome.targets.items()}


def _wanted_targets(clusters: Sequence[Mapping[str, Any]]) -> Json:
    return {
        each["name"]: _target(
            each.get("replicas", 0), {part["name"]: part.get("replicas", 0) for part in each.get("components") or ()}
        )
        for each in clusters
    }


def _target(replicas: int, components: Mapping[str, int]) -> Json:
    return {"replicas": replicas, "components": dict(components)} if components else {"replicas": replicas}
