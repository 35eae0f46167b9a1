"""The queues of another scheduler as `queue` statements, and what could not be said in them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.codes import WRONG_VALUE
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError
from kube_policy_scheduler.lang.checking.queues import MAX_LEVELS, MAX_QUEUES
from kube_policy_scheduler.lang.formatting.format import Formatted, format_source
from kube_policy_scheduler.lang.reading.literals import OBJECT_NAME, label_problem, quoted
from kube_policy_scheduler.quantities.quantity import QuantityError, amount

Step = str | int
Amounts = dict[str, int]
"""By resource, in column units: cpu in millicores, others in units."""

MOST_UNREAD = 100
"""Fields of one object that are reported one by one."""
_UNITS = tuple(
    (name, 2**power) for name, power in (("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))
) + tuple((name, 10**power) for name, power in (("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3)))


@dataclass(frozen=True, slots=True)
class Selection:
    """Pods that a queue takes: those with a label, in one namespace or in any."""

    label: str = ""
    """Key; "": any."""
    value: str = ""
    namespace: str = ""
    """"": any."""


@dataclass(slots=True)
class ForeignQueue:
    """A queue as another scheduler declares it."""

    name: str
    parent: str = ""
    """"": none."""
    pods: list[Selection] = field(default_factory=list)
    by: str = ""
    """The key of pods for which there is a queue each; "": one queue."""
    takes_all: bool = False
    """Whether it takes all pods that its parent takes."""
    minimum: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    lend: Amounts = field(default_factory=dict)
    weight: float = 1.0


class Fields:
    """The fields of one object. Fields that are not read are reported at the end: nothing is dropped silently."""

    def __init__(
        self, document: Document, value: Mapping[str, Any], path: Sequence[Step], title: str, notes: list[str]
    ) -> None:
        self._document, self._value, self._path = document, value, tuple(path)
        self.title = title
        self._notes = notes
        self._read: set[tuple[Hashable, ...]] = set()

    def get(self, *steps: Step, default: Any = None) -> Any:
        """Return what stands at a path; `default` if nothing or null does."""
        self._read.add(steps)
        found: Any = self._value
        for step in steps:
            if not isinstance(found, Mapping) or step not in found:
                return default
            found = found[step]
        return default if found is None else found

    def mapping(self, *steps: Step) -> Mapping[str, Any]:
        """Return a mapping; raises DocumentError if something else stands there."""
        found = self.get(*steps, default={})
        return found if isinstance(found, Mapping) else self.fail(steps, "expected a mapping")

    def items(self, *steps: Step) -> Sequence[Any]:
        """Return a list; raises DocumentError if something else stands there."""
        found = self.get(*steps, default=[])
        return found if isinstance(found, list) else self.fail(steps, "expected a list")

    def text(self, *steps: Step, default: str = "") -> str:
        """Return a text; raises DocumentError if something else stands there."""
        found = self.get(*steps, default=default)
        return found if isinstance(found, str) else self.fail(steps, "expected a text")

    def number(self, *steps: Step, default: float = 1.0) -> float:
        """Return a number from 0; raises DocumentError if something else stands there."""
        found = self.get(*steps, default=default)
        try:
            value = float(found) if not isinstance(found, bool) else -1.0
        except (TypeError, ValueError):
            value = -1.0
        return value if 0 <= value < 1e12 else self.fail(steps, f"`{_short(found)}` is not a number from 0")

    def child(self, value: Any, *steps: Step) -> Fields:
        """Return the fields of a part; the part counts as read, its own fields do not."""
        self._read.add(steps)
        if not isinstance(value, Mapping):
            self.fail(steps, "expected a mapping")
        return Fields(self._document, value, (*self._path, *steps), self.title, self._notes)

    def quantity(self, resource: str, written: Any, *steps: Step) -> int:
        """Return an amount in column units; raises DocumentError if it is none, or below 0."""
        if not resource or label_problem(resource, of="key"):
            self.fail(steps, f"`{_short(resource)}` is not the name of a resource")
        if isinstance(written, bool) or not isinstance(written, str | int | float):
            self.fail(steps, f"expected a quantity for {resource}, such as `10` or `4Gi`")
        try:
            found = amount(resource, str(written))
        except QuantityError as error:
            self.fail(steps, f"`{_short(written)}` is not a quantity: {error}")
        if found < 0:
            self.fail(steps, f"`{_short(written)}` is below 0")
        return found

    def amounts(self, *steps: Step) -> Amounts:
        """Return a mapping of resources to quantities."""
        return {
            str(name): self.quantity(str(name), written, *steps, str(name))
            for name, written in self.mapping(*steps).items()
        }

    def note(self, what: str) -> None:
        """Tell what the statements do not say."""
        self._notes.append(f"{self.title}: {what}")

    def lost(self, *steps: Step, why: str) -> None:
        """Tell that a field is not converted, if it is there and not empty."""
        if self.get(*steps) not in (None, {}, [], ""):
            self.note(f"{_shown(steps)} is not converted: {why}")

    def unread(self, *ignored: Step) -> None:
        """Tell all fields that were not read, but for these at the top."""
        found = list(self._unread(self._value, ()))
        for steps in found[:MOST_UNREAD]:
            if steps[0] not in ignored:
                self.note(f"{_shown((*self._inner(), *steps))} is not converted: this program does not know it")
        if len(found) > MOST_UNREAD:
            self.note(f"{len(found) - MOST_UNREAD} more fields are not converted")

    def _inner(self) -> tuple[Step, ...]:
        return tuple(step for step in self._path if isinstance(step, str) and step != "items")

    def _unread(self, value: Any, steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
        if steps in self._read:
            return
        if isinstance(value, Mapping) and any(read[: len(steps)] == steps for read in self._read if read != steps):
            for key, inner in value.items():
                yield from self._unread(inner, (*steps, key))
        elif steps and value not in (None, {}, [], ""):
            yield steps

    def fail(self, steps: Sequence[Step], message: str) -> Any:
        """Raise DocumentError at a path."""
        path: tuple[Step, ...] = (*self._path, *steps)
        while path and not _is_there(self._document.value, path):
            path = path[:-1]
        raise DocumentError([self._document.error(path, WRONG_VALUE, message=f"{self.title}: {message}")])


def _is_there(value: Any, path: Sequence[Step]) -> bool:
    for step in path:
        if isinstance(value, list):
            if not isinstance(step, int) or not 0 <= step < len(value):
                return False
        elif not isinstance(value, Mapping) or step not in value:
            return False
        value = value[step]
    return True


def _shown(steps: Sequence[Step]) -> str:
    return ".".join(str(step) for step in steps)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


def checked_name(fields: Fields, name: object) -> str:
    """Return the name of a queue; raises DocumentError if no queue can have it."""
    if not isinstance(name, str) or not re.fullmatch(OBJECT_NAME, name) or len(name) > 253:
        fields.fail(("metadata", "name"), f"no queue can be called `{_short(name)}`")
    assert isinstance(name, str)
    return name


def checked_label(fields: Fields, value: object, *steps: Step) -> str:
    """Return the value of a label, or a namespace; raises DocumentError if it is none."""
    if not isinstance(value, str) or not value or label_problem(value, of="value"):
        fields.fail(steps, f"`{_short(value)}` is not a name")
    assert isinstance(value, str)
    return value


@dataclass(slots=True)
class Forest:
    """All queues that were read, by name, in the order in which they were declared."""

    notes: list[str] = field(default_factory=list)
    queues: dict[str, ForeignQueue] = field(default_factory=dict)
    reclaim: str | None = None
    """The `reclaim` statement; None: nothing is reclaimed."""

    def add(self, fields: Fields, queue: ForeignQueue) -> None:
        """Add a queue; raises DocumentError if there are too many, or two of one name."""
        if queue.name in self.queues:
            fields.fail(("metadata", "name"), f"there are two queues called `{queue.name}`")
        if len(self.queues) >= MAX_QUEUES:
            fields.fail((), f"there are more than {MAX_QUEUES:,} queues")
        self.queues[queue.name] = queue

    def require_tree(self, fields: Fields) -> None:
        """Raise DocumentError unless the parents of all queues are there and form trees of a usual depth."""
        for queue in self.queues.values():
            seen, each = [queue.name], queue
            while each.parent:
                if each.parent not in self.queues:
                    fields.fail((), f"queue `{each.name}` is below `{each.parent}`, which is not in the input")
                if each.parent in seen:
                    fields.fail((), f"queues are below each other in a circle: {' → '.join([*seen[-5:], each.parent])}")
                seen.append(each.parent)
                if len(seen) > MAX_LEVELS:
                    fields.fail(
                        (), f"queue `{queue.name}` is below {MAX_LEVELS} others; {MAX_LEVELS} levels are the most"
                    )
                each = self.queues[each.parent]

    def children(self) -> dict[str, list[ForeignQueue]]:
        """Return the queues by the name of their parent."""
        found: dict[str, list[ForeignQueue]] = {}
        for queue in self.queues.values():
            found.setdefault(queue.parent, []).append(queue)
        return found


def repair(forest: Forest) -> None:
    """Remove what our trees do not allow, and tell it: guarantees above a maximum, or above the parent's."""
    children = forest.children()
    guaranteed: dict[str, Amounts] = {}
    for queue in reversed(_top_down(children)):
        for resource, most in queue.maximum.items():
            if queue.minimum.get(resource, 0) > most:
                forest.notes.append(f"{queue.name}: its guarantee of {resource} is above its maximum, which counts")
                queue.minimum[resource] = most
        below: Amounts = {}
        for child in children.get(queue.name, ()):
            for resource, least in guaranteed[child.name].items():
                below[resource] = below.get(resource, 0) + least
        for resource, least in below.items():
            if resource in queue.minimum and queue.minimum[resource] < least:
                forest.notes.append(
                    f"{queue.name}: the queues below it are guaranteed more {resource} than it has; their sum counts"
                )
                del queue.minimum[resource]
            if resource in queue.maximum and queue.maximum[resource] < least:
                forest.notes.append(
                    f"{queue.name}: the queues below it have more {resource} guaranteed than its max, which is raised"
                )
                queue.maximum[resource] = least
        guaranteed[queue.name] = below | queue.minimum
        for resource in list(queue.lend):
            if queue.lend[resource] >= guaranteed[queue.name].get(resource, 0):
                del queue.lend[resource]  # all of it, as without the word
    limits: dict[str, Amounts] = {"": {}}
    for queue in _top_down(children):
        above = limits[queue.parent]
        for resource, most in list(queue.maximum.items()):
            if most > above.get(resource, most):
                del queue.maximum[resource]  # that of a queue above it is reached first
        limits[queue.name] = above | queue.maximum
    if forest.reclaim is not None and not forest.reclaim.startswith("reclaim fair") and not any(guaranteed.values()):
        forest.reclaim = None  # nothing is guaranteed


def _top_down(children: Mapping[str, Sequence[ForeignQueue]]) -> list[ForeignQueue]:
    found = list(children.get("", ()))
    for queue in found:  # grows
        found.extend(children.get(queue.name, ()))
    return found


def policy_text(forest: Forest, *, of: str) -> str:
    """Return the policy; raises DocumentError never: everything in it was checked."""
    children = forest.children()
    lines = []
    for queue in _top_down(children):
        words = [f"queue {queue.name}"]
        if queue.parent:
            words.append(f"of {queue.parent}")
        if queue.by:
            words.append(f"by {queue.by}")
        elif not queue.takes_all:
            words.append(f"for pods where {_condition(_all_pods(queue, children))}")
        for word, amounts in (("min", queue.minimum), ("max", queue.maximum), ("lend", queue.lend)):
            if shown := ", ".join(f"{quoted(name)} {_amount(name, value)}" for name, value in amounts.items()):
                words.append(f"{word} {shown}")
        if queue.weight not in (0.0, 1.0):
            words.append(f"weight {queue.weight:.6g}" if queue.weight < 1e6 else f"weight {queue.weight:.0f}")
        lines.append(" ".join(words))
    lines.append("order by queue.share, pod.priority desc, pod.queued")
    if forest.reclaim is not None:
        lines.append(forest.reclaim)
    notes = [" ".join(note.split()) for note in forest.notes]
    head = [f"# From {of}.", *(["# Differences:", *(f"# - {note}" for note in notes)] if notes else []), ""]
    formatted = format_source(Source("queues.policy", "\n".join([*head, *lines]) + "\n"))
    assert isinstance(formatted, Formatted), formatted
    return formatted.text


def _all_pods(queue: ForeignQueue, children: Mapping[str, Sequence[ForeignQueue]]) -> list[Selection]:
    """Return the pods of a queue and of all below it."""
    found, stack = [], [queue]
    while stack:
        each = stack.pop()
        found.extend(each.pods)
        stack.extend(children.get(each.name, ()))
    return sorted(set(found), key=lambda one: (one.label, one.namespace, one.value))


def _condition(pods: Iterable[Selection]) -> str:
    values: dict[tuple[str, str], list[str]] = {}
    for one in pods:
        values.setdefault((one.label, one.namespace), []).append(one.value)
    namespaces = sorted(namespace for (label, namespace) in values if not label)
    tests = []
    if namespaces:
        listed = ", ".join(f'"{namespace}"' for namespace in namespaces)
        tests.append(f"pod.namespace in [{listed}]" if len(namespaces) > 1 else f"pod.namespace == {listed}")
    for (label, namespace), wanted in values.items():
        if not label:
            continue
        shown, key = [quoted(value) for value in wanted], quoted(label)
        test = f"pod label {key}={shown[0]}" if len(shown) == 1 else f"pod label {key} in ({', '.join(shown)})"
        tests.append(f'pod.namespace == "{namespace}" and {test}' if namespace else test)
    if len(tests) == 1:
        return tests[0]
    return " or ".join(f"({test})" if " and " in test else test for test in tests)


def is_bytes(resource: str) -> bool:
    """Return whether amounts of a resource have a unit of bytes."""
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


def _amount(resource: str, value: int) -> str:
    """Return an amount as Kubernetes writes quantities; bytes are rounded up to 1,000."""
    if resource == "cpu":
        return f"{value // 1000}" if value % 1000 == 0 else f"{value}m"
    if not is_bytes(resource):
        return str(value)
    if not value:
        return "0Ki"
    exact = [f"{value // size}{suffix}" for suffix, size in _UNITS if value % size == 0]
    return min(exact, key=len, default=f"{-(-value // 1000)}k")
