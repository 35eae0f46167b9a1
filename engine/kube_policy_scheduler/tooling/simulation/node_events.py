"""Nodes that come, go and change in virtual time, as people write them.

A file lists events, each with `at` (from the beginning) and one of `add` (the short form of a node in policy tests,
with `count`), `remove`, `cordon`, `uncordon` (names) and `change` (the short form, laid over the node of that name).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.defaulting import AdmissionError
from kube_policy_scheduler.cluster.node_info import HOSTNAME_LABEL
from kube_policy_scheduler.diagnostics import Diagnostic, Source, closest
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.schema import EXPECTED, DocumentSchema
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_document
from kube_policy_scheduler.quantities.quantity import QuantityError
from kube_policy_scheduler.times import parse_duration
from kube_policy_scheduler.tooling.cluster_state import stored_object
from kube_policy_scheduler.tooling.short_forms import Json, ShortFormError, node_object
from kube_policy_scheduler.tooling.tester.suite_file import schema_text

MOST_NODES = 100_000
"""That a file adds, and that it has events for."""
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class NodeAction(Enum):
    """What happens to a node."""

    ADD = "add"
    REMOVE = "remove"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    CHANGE = "change"


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One change of one node."""

    at: float
    """Seconds from the beginning."""
    action: NodeAction
    name: str
    node: objects.Node | None = None
    """Of `add`: the node."""
    form: Mapping[str, Any] | None = None
    """Of `change`: the short form to lay over the node."""

    def applied(self, node: objects.Node) -> objects.Node:
        """Return the node as the event leaves it; not for `add` and `remove`."""
        match self.action:
            case NodeAction.CORDON:
                return cordoned(node)
            case NodeAction.UNCORDON:
                taints = [taint for taint in node.spec.taints or () if taint.key != _UNSCHEDULABLE]
                spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
                return msgspec.structs.replace(node, spec=spec)
            case _:
                assert self.form is not None
                return changed(node, self.form)


def cordoned(node: objects.Node) -> objects.Node:
    """Return a node that takes no new pods, as `kubectl cordon` leaves it."""
    if node.spec.unschedulable:
        return node
    taint = objects.Taint(key=_UNSCHEDULABLE, effect="NoSchedule")
    spec = msgspec.structs.replace(node.spec, unschedulable=True, taints=[*(node.spec.taints or ()), taint])
    return msgspec.structs.replace(node, spec=spec)


def changed(node: objects.Node, form: Mapping[str, Any]) -> objects.Node:
    """Return a node with a short form laid over it.

    Raises:
        ShortFormError: the form cannot be read.
    """
    return msgspec.convert(node_object(form, over=msgspec.to_builtins(node)), objects.Node, strict=True)


NODE_FORM_LEFT_OUT = ("from", "devices", "numa", "volume_room")
"""Parts of the short form that are objects beside the node."""


@cache
def node_definitions() -> Json:
    """Return the definitions of a schema in which `node` is the short form of a node."""
    defs: Json = json.loads(schema_text())["$defs"]
    node = defs["node"]
    properties = {key: value for key, value in node["properties"].items() if key not in NODE_FORM_LEFT_OUT}
    return {**defs, "node": {**node, "properties": properties}}


@cache
def _schema() -> DocumentSchema:
    defs = node_definitions()
    name = {"type": "string", "minLength": 1}
    names = {
        "anyOf": [name, {"type": "array", "items": name, "minItems": 1}],
        EXPECTED: "the name of a node, or several",
    }
    node = {**defs["node"], "required": ["name"]}
    item = {
        "type": "object",
        "additionalProperties": False,
        "required": ["at"],
        "properties": {
            "at": {"$ref": "#/$defs/duration"},
            "add": node,
            "count": {"type": "integer", "minimum": 1, "maximum": MOST_NODES},
            "remove": names,
            "cordon": names,
            "uncordon": names,
            "change": node,
        },
        "dependentRequired": {"count": ["add"]},
    }
    properties = {
        "events": {"type": "array", "minItems": 1, "maxItems": MOST_NODES, "items": item},
        "bare_pods": {"enum": ["end", "return"]},
    }
    return DocumentSchema(
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["events"],
            "properties": properties,
            "$defs": defs,
        }
    )


@dataclass(frozen=True, slots=True)
class NodeEvents:
    """What a file says."""

    events: tuple[NodeEvent, ...] = ()
    """In the order of time."""
    bare_pods_return: bool = False
    """Whether pods without a controller start again when their node is removed; otherwise they end with it."""

    def after(self, start: float) -> NodeEvents:
        """Return the events of a simulation that begins later; what happened before happens at once."""
        moved = tuple(replace(event, at=max(0.0, event.at - start)) for event in self.events)
        return NodeEvents(moved, self.bare_pods_return)


NO_EVENTS = NodeEvents()


def parse_node_events(source: Source, *, nodes: Iterable[str]) -> NodeEvents:
    """Return the events of a file.

    Args:
        source: the file.
        nodes: names of the nodes that are there at the beginning.

    Raises:
        DocumentError: it is no such file, or speaks of a node that is not there then; all problems are reported.
    """
    document = parse_document(source)
    problems = list(_schema().check(document))
    if problems:
        raise DocumentError(problems)
    ordered = sorted(enumerate(document.value["events"]), key=lambda item: parse_duration(item[1]["at"]))
    known, ever, found = set(nodes), set(nodes), list[NodeEvent]()
    for index, form in ordered:
        for event in _events(form, document, ("events", index), problems):
            wrong = _unlike(event, known, ever)
            if wrong:
                problems.append(FixtureObject({}, document, ("events", index)).error((event.action.value,), wrong))
            elif event.action is NodeAction.ADD:
                known.add(event.name)
                ever.add(event.name)
            elif event.action is NodeAction.REMOVE:
                known.discard(event.name)
            found.append(event)
        if len(found) > MOST_NODES:
            problems.append(FixtureObject({}, document, ()).error(("events",), f"more than {MOST_NODES:,} changes"))
            break
    if problems:
        raise DocumentError(problems)
    return NodeEvents(tuple(found), document.value.get("bare_pods") == "return")


def _unlike(event: NodeEvent, known: set[str], ever: set[str]) -> str:
    """Return why an event cannot happen, "" if it can."""
    if event.action is NodeAction.ADD:
        return f"there is a node `{event.name}` already" if event.name in known else ""
    if event.name in known:
        return ""
    if event.name in ever:
        return f"the node `{event.name}` is not there at that time"
    meant = closest(event.name, ever)
    return f"there is no node `{event.name}`" + (f"; did you mean `{meant}`?" if meant else "")


def _events(
    form: Mapping[str, Any], document: Document, path: tuple[str | int, ...], problems: list[Diagnostic]
) -> Iterator[NodeEvent]:
    at = parse_duration(form["at"])
    here = FixtureObject({}, document, path)
    actions = [action for action in NodeAction if action.value in form]
    if len(actions) != 1:
        words = ", ".join(action.value for action in NodeAction)
        problems.append(here.error((), f"expected one of {words} in each event, found {len(actions)}"))
        return
    action, value = actions[0], form[actions[0].value]
    match action:
        case NodeAction.ADD:
            node = made_node(value, document, (*path, "add"), problems)
            for name in numbered(value["name"], form.get("count", 1)) if node is not None else ():
                yield NodeEvent(at, action, name, renamed(node, name))
        case NodeAction.CHANGE:
            if made_node(value, document, (*path, "change"), problems) is not None:
                yield NodeEvent(at, action, value["name"], form=value)
        case _:
            for name in [value] if isinstance(value, str) else value:
                yield NodeEvent(at, action, name)


def numbered(name: str, count: int) -> list[str]:
    """Return names of some nodes: the name itself for one, numbered for several."""
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]


def made_node(
    form: Mapping[str, Any], document: Document, path: tuple[str | int, ...], problems: list[Diagnostic]
) -> objects.Node | None:
    """Return the node of a short form; None where it cannot be read, with what is wrong among the problems."""
    try:
        value = node_object(form)
    except ShortFormError as error:
        problems.append(FixtureObject({}, document, path).error((error.key,), str(error)))
        return None
    one = FixtureObject(value, document, path)
    try:
        return stored_object(one, {}, scheduler="").convert(objects.Node)
    except DocumentError as error:
        problems.extend(error.diagnostics)
    except (AdmissionError, QuantityError) as error:
        problems.append(one.error((), str(error)))
    return None


def renamed(node: objects.Node | None, name: str) -> objects.Node:
    """Return the same node under another name."""
    assert node is not None
    meta = node.metadata
    labels = {**(meta.labels or {}), HOSTNAME_LABEL: name}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(meta, name=name, uid=name, labels=labels))
