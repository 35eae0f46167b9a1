"""What policies read by name: labels and annotations with what they are compared with, and texts. No cluster."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.lang import checked, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, values_of
from kube_policy_scheduler.lang.compiling.compiled import CompiledPolicy
from kube_policy_scheduler.lang.environment import CLUSTER
from kube_policy_scheduler.policy.policy import Policy

Reader: TypeAlias = Policy | CompiledPolicy
"""A policy of pods, or one of workloads."""


class KeyRead(msgspec.Struct, frozen=True):
    """One place at which a policy reads a label or an annotation, or spreads over a label."""

    policy: str
    subject: str
    """`node` or `pod`, `cluster` or `workload`"""
    what: str
    """`label` or `annotation`"""
    key: str
    span: Span
    values: tuple[str, ...] = ()
    """What it is compared with there; empty where it is not compared with constants."""
    negated: bool = False
    """Whether the comparison is `!=` or `not in`."""
    needs_each: bool = False
    """Whether each of the values has a meaning of its own, as those of `target`: one that is not there is a mistake."""


def key_reads(policies: Iterable[Reader]) -> tuple[KeyRead, ...]:
    """Return every place at which policies read labels and annotations, in the order in which they are written."""
    found: dict[tuple[str, str, str, Span], KeyRead] = {}
    for policy in policies:
        for read in _reads(policy):
            place = (read.subject, read.what, read.key, read.span)
            before = found.get(place)
            if before is None or (read.values and not before.values):
                found[place] = read
    return tuple(found.values())


def literals(policies: Sequence[Reader]) -> frozenset[str]:
    """Return every text that the policies hold, and the types of the conditions that they read."""
    found = {
        text
        for policy in policies
        for root in (*expressions_of(policy), *_of_members(policy))
        for part in typed.below(root)
        for text in (*_constants(part), *_condition(part))
    }
    for policy in policies:
        for clause in _checked(policy).clauses:
            if isinstance(clause, checked.Grouping):
                found |= clause.targets.keys()
    return frozenset(found)


def annotation_keys(policies: Iterable[Reader]) -> frozenset[str]:
    """Return the annotations that the policies read."""
    policies = tuple(policies)
    of_members = (
        read
        for policy in policies
        for root in _of_members(policy)
        for part in typed.below(root)
        for read in _read(policy, part)
    )
    return frozenset(read.key for read in (*key_reads(policies), *of_members) if read.what == "annotation")


def _of_members(policy: Reader) -> Iterator[typed.Typed]:
    """Yield what aggregates over the nodes or pods of member clusters are there."""
    for root in expressions_of(policy):
        for part in typed.below(root):
            if isinstance(part, typed.MemberAggregate):
                yield part.inside


def fields(policies: Iterable[Reader]) -> frozenset[str]:
    """Return the paths of all fields that the policies read, such as `pod.queued`."""
    return frozenset(path for policy in policies for root in expressions_of(policy) for path in _paths(root))


def first_reads(policies: Iterable[Reader], paths: Collection[str]) -> Mapping[str, Span]:
    """Return where each of some fields is read first; those that no policy reads are absent."""
    found: dict[str, Span] = {}
    for policy in policies:
        for root in expressions_of(policy):
            for part in typed.below(root):
                if isinstance(part, typed.Read) and part.field.path in paths:
                    found.setdefault(part.field.path, part.span)
    return found


def fields_of_clause(policy: Reader, name: str) -> frozenset[str]:
    """Return the paths of all fields that one clause of a policy reads."""
    clauses = (clause for clause in _checked(policy).clauses if clause.name == name)
    return frozenset(path for clause in clauses for root in values_of(clause) for path in _paths(root))


def _paths(root: typed.Typed) -> Iterator[str]:
    return (part.field.path for part in typed.below(root) if isinstance(part, typed.Read))


def _checked(policy: Reader) -> CheckedPolicy:
    return policy.checked if isinstance(policy, CompiledPolicy) else policy.compiled.checked


def expressions_of(policy: Reader) -> Iterator[typed.Typed]:
    """Yield all expressions of a policy: pods, clauses, queues, orders of devices and domains, backfill, and moves."""
    return checked.expressions_of(_checked(policy))


def _reads(policy: Reader) -> Iterator[KeyRead]:
    for root in expressions_of(policy):
        for part in typed.below(root):
            match part:
                case typed.Same(left=left, right=right, negated=negated):
                    for mine, other in ((left, right), (right, left)):
                        yield from _compared(policy, mine, other, negated)
                case typed.Contained(item=item, list=items, negated=negated):
                    yield from _compared(policy, item, items, negated)
                case typed.Aggregate(topology=str() as topology, span=span) if topology != "*":
                    yield KeyRead(policy.name, "node", "label", topology, span)
                case typed.NodeAggregate(topology=topology, span=span) if topology != "*":
                    yield KeyRead(policy.name, "node", "label", topology, span)
                case _:
                    yield from _read(policy, part)
    for clause in _checked(policy).clauses:
        if isinstance(clause, checked.Grouping) and clause.topology is not None:
            values = tuple(clause.targets)
            yield KeyRead(policy.name, "node", "label", clause.topology, clause.tree.span, values, needs_each=True)
        elif isinstance(clause, checked.WorkloadLimit) and clause.topology is not None and clause.topology != CLUSTER:
            yield KeyRead(policy.name, "node", "label", clause.topology, clause.tree.span)
        elif isinstance(clause, checked.Quota):
            yield from (KeyRead(policy.name, "node", "label", key, clause.tree.span) for key in clause.labels)
        if isinstance(clause, checked.Gang):
            for key, tree in zip(clause.levels, clause.tree.levels or (), strict=True):
                if key is not None:
                    yield KeyRead(policy.name, "node", "label", key, tree.span)


def _compared(policy: Reader, value: typed.Typed, other: typed.Typed, negated: bool) -> Iterator[KeyRead]:
    constant = _named(other)
    texts = tuple(_texts(constant)) if isinstance(constant, typed.Constant) else ()
    yield from _read(policy, _named(value), values=texts, negated=negated)


def _read(
    policy: Reader, value: typed.Typed, *, values: tuple[str, ...] = (), negated: bool = False
) -> Iterator[KeyRead]:
    if not isinstance(value, typed.Read) or value.key is None:
        return
    subject, _, what = value.field.path.partition(".")
    if what in ("label", "annotation"):
        yield KeyRead(policy.name, subject, what, value.key, value.span, values, negated)


def _named(value: typed.Typed) -> typed.Typed:
    while isinstance(value, typed.Reference):
        value = value.value
    return value


def _texts(root: typed.Typed) -> Iterator[str]:
    for part in typed.below(root):
        yield from _constants(part)


_QUOTED = r'"([^"\\]*)"'


def _constants(part: typed.Typed) -> Iterator[str]:
    if isinstance(part, typed.Apply):  # constant arguments, such as the class in `volume_room("fast")`, are bound
        yield from re.findall(_QUOTED, part.span.text)
    if isinstance(part, typed.Constant):
        items = part.value if isinstance(part.value, tuple | list | frozenset) else (part.value,)
        yield from (item for item in items if isinstance(item, str))


_CONDITIONS = frozenset({"node.conditions", "cluster.conditions", "cluster.condition_age"})
"""Fields whose key is the type of a condition."""


def _condition(part: typed.Typed) -> Iterator[str]:
    if isinstance(part, typed.Read) and part.field.path in _CONDITIONS and part.key is not None:
        yield part.key
