"""Workloads that come and events of a fleet, as people write them: short forms of policy tests, with times."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Source, closest
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.schema import EXPECTED, DocumentSchema
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_document
from kube_policy_scheduler.fleet.karmada.decision_maker import Key, Template
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.fleet.karmada.reading import BindingError, workload
from kube_policy_scheduler.times import parse_duration
from kube_policy_scheduler.tooling.fleet_objects import binding_object, cluster_changes, cluster_object
from kube_policy_scheduler.tooling.fleet_simulation.scenario import (
    SCHEDULER,
    FleetAction,
    FleetEvent,
    FleetEvents,
    Pace,
    WorkloadArrival,
)
from kube_policy_scheduler.tooling.short_forms import Json, ShortFormError
from kube_policy_scheduler.tooling.tester.suite_file import schema_text
from kube_policy_scheduler.wording import shortened, some

MOST_WORKLOADS = 100_000
MOST_EVENTS = 10_000
MOST_REPLICAS = 2**31 - 1
MOST_TIME = 10 * 365 * 86_400.0
"""In seconds: each time that people write, and the time from the first to the last of repeated workloads."""
_TIMES = ("at", "lasts", "count", "every")
_OF_TESTS = frozenset({"fresh", "term", "created", "decided", "attempts"})
"""Keys of workloads in tests whose values follow here from what happens."""
_OF_CASES = frozenset({"room", "evicting", "healthy", "ready", "ready_for", "member"})
"""The same for keys of clusters; what is in a member cluster is not simulated node by node."""
_PLACES = ("region", "provider", "zone")


@cache
def _definitions() -> Json:
    found: Json = json.loads(schema_text())["$defs"]
    for name in ("workload", "fleetCluster"):
        found[name] = _without_parameters(found[name])
    found["duration"]["pattern"], _, _ = found["duration"]["pattern"].partition(r"|\$")
    return found


def _without_parameters(schema: Any) -> Any:
    """Return a schema whose numbers are numbers: tests may write a parameter instead."""
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == ["integer", "string"]:
        return {key: value for key, value in schema.items() if key != "pattern"} | {"type": "integer"}
    return {key: _without_parameters(value) for key, value in schema.items()}


# --- workloads -----------------------------------------------------------------------------------------


@cache
def _workloads_schema() -> DocumentSchema:
    defs = _definitions()
    form = {key: value for key, value in defs["workload"]["properties"].items() if key not in _OF_TESTS}
    time = {"$ref": "#/$defs/duration"}
    form |= {"at": time, "lasts": time, "every": time}
    form["count"] = {"type": "integer", "minimum": 1, "maximum": MOST_WORKLOADS}
    form["replicas"] = {"type": "integer", "minimum": 0, "maximum": MOST_REPLICAS}
    items = {
        "type": "object",
        "additionalProperties": False,
        "properties": form,
        "dependentRequired": {"every": ["count"]},
    }
    return _listed("workloads", items, {"maxItems": MOST_WORKLOADS})


def _listed(name: str, items: Json, more: Json, **others: Json) -> DocumentSchema:
    properties = {name: {"type": "array", "minItems": 1, "items": items, **more}, **others}
    schema = {"type": "object", "additionalProperties": False, "required": [name], "properties": properties}
    return DocumentSchema({**schema, "$defs": _definitions()})


def parse_workloads(
    source: Source, *, starts_at: float, clusters: Iterable[str], there: Iterable[Key] = ()
) -> tuple[WorkloadArrival, ...]:
    """Return the workloads of a file, in the order in which they come.

    Args:
        source: the file.
        starts_at: the beginning, Unix seconds.
        clusters: names that `has` may use.
        there: namespace and name of bindings that the fleet has already.

    Raises:
        DocumentError: it is no such file; all problems are reported.
    """
    document = parse_document(source)
    problems = list(_workloads_schema().check(document))
    if problems:
        raise DocumentError(problems)
    known, found, forms = tuple(clusters), list[WorkloadArrival](), document.value["workloads"]
    if sum(form.get("count", 1) for form in forms) > MOST_WORKLOADS:
        raise DocumentError(
            [FixtureObject({}, document, ()).error(("workloads",), f"more than {MOST_WORKLOADS:,} workloads")]
        )
    names = dict.fromkeys(there, "in the fleet")
    for index, form in enumerate(forms):
        here = FixtureObject({}, document, ("workloads", index))
        for name in form.get("has", {}):
            if name not in known:
                problems.append(here.error(("has", name), _unknown("cluster", name, known)))
        try:
            _check_times(form, ("at", "lasts", "every"), count=form.get("count", 1))
            made = list(_repeated(form, index, starts_at))
        except ShortFormError as error:
            problems.append(here.error((error.key,), str(error)))
            continue
        except (BindingError, msgspec.ValidationError) as error:
            problems.append(here.error(("placement",) if "placement" in form else (), str(error)))
            continue
        for each in made:
            key = each.binding.metadata.namespace, each.binding.metadata.name
            if key in names:
                of = each.binding.spec.resource
                text = f"there is a {of.kind} `{of.namespace}/{of.name}` already, {names[key]}"
                problems.append(here.error((), f"{text}: write a `name` of its own"))
                break
            names[key] = f"workload {index + 1} of the file"
        found += made
    if problems:
        raise DocumentError(problems)
    return tuple(sorted(found, key=lambda each: each.at))


def _repeated(form: Json, index: int, starts_at: float) -> Iterator[WorkloadArrival]:
    at, every = parse_duration(form.get("at", "0s")), parse_duration(form.get("every", "0s"))
    lasts = parse_duration(form["lasts"]) if "lasts" in form else None
    count = form.get("count", 1)
    template = Template(form.get("labels", {}), form.get("annotations", {}))
    kept = {key: value for key, value in form.items() if key not in _TIMES}
    base = form.get("name", f"workload-{index + 1}")
    for number in range(count):
        named = kept | {"name": base if count == 1 else f"{base}-{number + 1}"}
        comes = at + number * every
        value = binding_object(named, name=base, now=starts_at + comes, scheduler=SCHEDULER)
        binding = msgspec.convert(value, ResourceBinding)
        workload(binding)
        yield WorkloadArrival(comes, binding, template, lasts)


def _check_times(form: Json, keys: Iterable[str], *, count: int = 1) -> None:
    """Look whether times are near enough to be simulated. count: how often `every` passes.

    Raises:
        ShortFormError: one is not.
    """
    for key in keys:
        if key in form and parse_duration(form[key]) * (count if key == "every" else 1) > MOST_TIME:
            times = f"{count:,} times " if key == "every" else ""
            raise ShortFormError(
                key, f"{times}`{shortened(form[key], 40)}` is more than 10 years: write a shorter time"
            )


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    meant = closest(name, known)
    return f"there is no {what} `{name}`" + (f"; did you mean `{meant}`?" if meant else _there_are(known))


def _there_are(known: Sequence[str]) -> str:
    return f"; there are {some(sorted(known))}" if known else ""


# --- events --------------------------------------------------------------------------------------------


@cache
def _events_schema() -> DocumentSchema:
    defs = _definitions()
    cluster = {key: value for key, value in defs["fleetCluster"]["properties"].items() if key not in _OF_CASES}
    form = {**defs["fleetCluster"], "properties": cluster, "required": ["name"]}
    name = {"type": "string", "minLength": 1}
    place = {
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
        "properties": dict.fromkeys(_PLACES, name),
    }
    names = {
        "anyOf": [name, {"type": "array", "items": name, "minItems": 1}, place],
        EXPECTED: "the name of a cluster, a list of names, or one of {region: …}, {provider: …}, {zone: …}",
    }
    time = {"$ref": "#/$defs/duration"}
    scale = {
        "type": "object",
        "additionalProperties": False,
        "required": ["workload", "replicas"],
        "properties": {"workload": name, "replicas": {"type": "integer", "minimum": 0, "maximum": MOST_REPLICAS}},
    }
    item = {
        "type": "object",
        "additionalProperties": False,
        "required": ["at"],
        "properties": {
            "at": time,
            "lose": names,
            "for": time,
            "recover": names,
            "change": form,
            "add": form,
            "remove": names,
            "scale": scale,
            "end": name,
        },
        "dependentRequired": {"for": ["lose"]},
    }
    return _listed("events", item, {"maxItems": MOST_EVENTS}, start=time, evict_after=time)


def parse_events(
    source: Source, *, clusters: Sequence[KarmadaCluster], workloads: Iterable[tuple[str, str]], starts_at: float
) -> FleetEvents:
    """Return the events of a file.

    Args:
        source: the file.
        clusters: that are there at the beginning.
        workloads: namespace and name of those that are there, or come.
        starts_at: the beginning, Unix seconds.

    Raises:
        DocumentError: it is no such file, or speaks of a cluster that is not there then, or of an unknown workload; all
            problems are reported.
    """
    document = parse_document(source)
    problems = list(_events_schema().check(document))
    if problems:
        raise DocumentError(problems)
    for path, form in (
        ((), document.value),
        *((("events", at), each) for at, each in enumerate(document.value["events"])),
    ):
        try:
            _check_times(form, ("at", "for", "start", "evict_after"))
        except ShortFormError as error:
            problems.append(FixtureObject({}, document, path).error((error.key,), str(error)))
    if problems:
        raise DocumentError(problems)
    reader = _EventReader(document, clusters, frozenset(workloads), starts_at, problems)
    found = [event for index, form in reader.ordered() for event in reader.events(form, ("events", index))]
    if problems:
        raise DocumentError(problems)
    value, usual = document.value, Pace()
    pace = Pace(
        start=parse_duration(value["start"]) if "start" in value else usual.start,
        evict_after=parse_duration(value["evict_after"]) if "evict_after" in value else usual.evict_after,
    )
    return FleetEvents(tuple(sorted(found, key=lambda each: each.at)), pace)


class _EventReader:
    """Reads events in the order of time, and knows which clusters there are by then."""

    def __init__(
        self,
        document: Document,
        clusters: Sequence[KarmadaCluster],
        workloads: frozenset[tuple[str, str]],
        starts_at: float,
        problems: list[Diagnostic],
    ) -> None:
        self._document, self._starts_at, self._problems = document, starts_at, problems
        self._places = {each.metadata.name: _places(each) for each in clusters}
        self._ever = set(self._places)
        self._workloads = workloads
        self._apis = frozenset(
            (each.group_version, served.kind)
            for cluster in clusters
            for each in cluster.status.api_enablements or ()
            for served in each.resources or ()
        )

    def ordered(self) -> list[tuple[int, Json]]:
        """Return the events with their places in the file, the first one first."""
        return sorted(enumerate(self._document.value["events"]), key=lambda item: parse_duration(item[1]["at"]))

    def events(self, form: Json, path: tuple[str | int, ...]) -> Iterator[FleetEvent]:
        """Yield what one entry of the file says."""
        here, at = FixtureObject({}, self._document, path), parse_duration(form["at"])
        actions = [action for action in FleetAction if action.value in form]
        if len(actions) != 1:
            words = ", ".join(action.value for action in FleetAction)
            self._problems.append(here.error((), f"expected one of {words} in each event, found {len(actions)}"))
            return
        (action,) = actions
        value = form[action.value]
        match action:
            case FleetAction.SCALE | FleetAction.END:
                name = value if isinstance(value, str) else value["workload"]
                found = self._workload(name, here, action)
                if found:
                    count = 0 if isinstance(value, str) else value["replicas"]
                    yield FleetEvent(at, action, workload=found, replicas=count)
            case FleetAction.ADD | FleetAction.CHANGE:
                yield from self._made(at, action, value, here)
            case _:
                names, told = self._meant(value, here, action)
                if names:
                    yield FleetEvent(at, action, names, told)
                if names and "for" in form:
                    yield FleetEvent(at + parse_duration(form["for"]), FleetAction.RECOVER, names, told)
                if action is FleetAction.REMOVE:
                    for name in names:
                        self._places.pop(name, None)

    def _made(self, at: float, action: FleetAction, form: Json, here: FixtureObject) -> Iterator[FleetEvent]:
        name = form["name"]
        try:
            if action is FleetAction.ADD:
                made = cluster_object(form, now=self._starts_at + at, apis=self._apis)
            else:
                made = cluster_changes(form)
            read = msgspec.convert(made, KarmadaCluster)
        except ShortFormError as error:
            self._problems.append(here.error((action.value, error.key), str(error)))
            return
        except msgspec.ValidationError as error:
            self._problems.append(here.error((action.value,), str(error)))
            return
        is_there = name in self._places
        if action is FleetAction.ADD and is_there:
            self._problems.append(here.error((action.value, "name"), f"there is a cluster `{name}` already"))
        elif action is FleetAction.CHANGE and not is_there:
            self._problems.append(here.error((action.value, "name"), self._missing(name)))
        else:
            known = self._places.get(name, dict[str, frozenset[str]]())
            self._places[name] = known | {key: values for key, values in _places(read).items() if values}
            self._ever.add(name)
            yield FleetEvent(at, action, (name,), name, made, form)

    def _meant(self, value: Any, here: FixtureObject, action: FleetAction) -> tuple[tuple[str, ...], str]:
        """Return the clusters that an event is about, and how it calls them; none if it is wrong."""
        if isinstance(value, Mapping):
            ((key, wanted),) = value.items()
            names = tuple(sorted(name for name, places in self._places.items() if wanted in places[key]))
            if not names:
                known = sorted({each for places in self._places.values() for each in places[key]})
                text = f"no cluster is in the {key} `{wanted}` at that time"
                self._problems.append(here.error((action.value, key), text + _advice(wanted, known)))
            return names, f"{key} {wanted}"
        names = (value,) if isinstance(value, str) else tuple(dict.fromkeys(value))
        wrong = [name for name in names if name not in self._places]
        self._problems += [here.error((action.value,), self._missing(name)) for name in wrong]
        return (() if wrong else names), some(names)

    def _missing(self, name: str) -> str:
        if name in self._ever:
            return f"the cluster `{name}` is not there at that time"
        return _unknown("cluster", name, tuple(self._ever))

    def _workload(self, name: str, here: FixtureObject, action: FleetAction) -> str:
        """Return NAMESPACE/NAME of the workload that an event names; "" if it is wrong."""
        namespace, _, short = name.rpartition("/")
        found = [each for each in self._workloads if each[1] == short and namespace in ("", each[0])]
        if len(found) == 1:
            return "/".join(filter(None, found[0]))
        path = (action.value,) if action is FleetAction.END else (action.value, "workload")
        names = tuple(sorted("/".join(filter(None, each)) for each in self._workloads))
        if found:
            text = f"several workloads are called `{name}`; write NAMESPACE/NAME"
        else:
            text = _unknown("workload", name, names)
        self._problems.append(here.error(path, text))
        return ""


def _advice(wanted: str, known: Sequence[str]) -> str:
    meant = closest(wanted, known)
    return f"; did you mean `{meant}`?" if meant else _there_are(known)


def _places(cluster: KarmadaCluster) -> dict[str, frozenset[str]]:
    """Return the places of a cluster by the words by which events name them."""
    spec = cluster.spec
    return {
        "region": frozenset({spec.region} - {""}),
        "provider": frozenset({spec.provider} - {""}),
        "zone": frozenset(spec.zones or ()),
    }
