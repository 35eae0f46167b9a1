"""A fleet and a workload in short form, as values: of a case of a test file, or of a text with nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.schema import DocumentSchema
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError
from kube_policy_scheduler.fleet.model import Fleet, FleetCluster, Workload
from kube_policy_scheduler.fleet.running import RunningWorkloads
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES
from kube_policy_scheduler.policy.members import ReadMember
from kube_policy_scheduler.times import unix_seconds
from kube_policy_scheduler.tooling.fleet_forms import fleet_cluster, fleet_workload
from kube_policy_scheduler.tooling.short_forms import Json, ShortFormError
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.case_runner import CaseClusterBuilder
from kube_policy_scheduler.tooling.tester.metrics import Metrics
from kube_policy_scheduler.tooling.tester.suite_file import (
    Part,
    Path,
    Suite,
    did_you_mean,
    named_twice,
    schema_text,
    unfilled,
)


@dataclass(frozen=True, slots=True)
class FleetParts:
    """Where clusters and workloads are written."""

    clusters: Sequence[Part]
    workload: Part
    """What is decided."""
    others: Sequence[Part] = ()
    """What runs beside it."""
    over: Part | None = None
    """Laid over the clusters, by name."""


_ALTERNATIVES = (frozenset({"zone", "zones"}),)
"""Keys of a cluster that say the same: one that a case says replaces the other of the file."""


class WrittenFleet:
    """The clusters and the workloads that a document says."""

    def __init__(self, document: Document, builder: CaseClusterBuilder, parts: FleetParts, *, now: float) -> None:
        """Read what is written.

        Args:
            document: where it stands.
            builder: makes the nodes and pods of a cluster that lists them.
            parts: where in the document.
            now: Unix seconds of the decision.

        Raises:
            DocumentError: a cluster or a workload cannot be made, or a cluster is not known; all problems are
                reported.
        """
        self._document, self._builder, self._over, self._now = document, builder, parts.over, now
        self._found: list[Diagnostic] = []
        forms = self._laid_over(parts.clusters)
        written = {name: part for name, (part, _) in forms.items()}
        shown = [form for _, form in forms.values()]
        self.workload = self._made_workload(parts.workload, shown, tuple(forms))
        """What is decided."""
        self.others = [self._made_workload(part, shown, tuple(forms)) for part in parts.others]
        """What runs beside it."""
        self._report_same(parts)
        clusters = [self._made_cluster(written[name], form) for name, (_, form) in sorted(forms.items())]
        if self._found:
            raise DocumentError(self._found)
        self.fleet = Fleet(tuple(each for each in clusters if each is not None), running=RunningWorkloads(self.others))
        """The clusters, by name."""

    def _laid_over(self, clusters: Sequence[Part]) -> dict[str, tuple[Part, Json]]:
        """Return where each cluster is written, and its short form, by name."""
        forms = {part.value["name"]: (part, part.value) for part in clusters}
        over = self._over
        for name, form in over.value.items() if over is not None else ():
            if name not in forms:
                assert over is not None
                advice = did_you_mean(name, tuple(forms), none="the test has no `clusters`")
                path = (*over.path, name)
                self._found.append(self._error(path, f"unknown cluster `{name}`", advice=advice, key=True))
                continue
            part, known = forms[name]
            replaced = {key for both in _ALTERNATIVES if not both.isdisjoint(form) for key in both}
            forms[name] = part, {key: value for key, value in known.items() if key not in replaced} | form
        return forms

    def _made_workload(self, part: Part, clusters: list[Json], known: tuple[str, ...]) -> Workload:
        for name in part.value.get("has", {}):
            if name not in known:
                advice = did_you_mean(name, known, none="the test has no `clusters`")
                path = (*part.path, "has", name)
                self._found.append(self._error(path, f"unknown cluster `{name}`", advice=advice, key=True))
        try:
            return fleet_workload(part.value, clusters, self._now)
        except ShortFormError as error:
            self._found.append(self._error((*part.path, error.key), str(error)))
            return Workload("Deployment", "web")

    def _report_same(self, parts: FleetParts) -> None:
        """Report each workload that is the same as another one: it would count as that one."""
        known = {self.workload.identity}
        for part, each in zip(parts.others, self.others, strict=True):
            if each.identity in known:
                message = f"two workloads are the {each.kind} `{each.namespace}/{each.name}`"
                advice = "give one of them another name"
                self._found.append(self._error((*part.path, "name"), message, advice=advice))
            known.add(each.identity)

    def _made_cluster(self, part: Part, form: Json) -> FleetCluster | None:
        try:
            made = fleet_cluster(form, self.workload, self._now)
            return msgspec.structs.replace(made, member=self._member(part, form))
        except DocumentError as error:
            self._found.extend(error.diagnostics)
            return None
        except ShortFormError as error:
            self._found.append(self._error(self._where(part, form["name"], error.key), str(error)))
            return None

    def _member(self, part: Part, form: Json) -> ReadMember | None:
        """Return the nodes and pods of a cluster, if the test lists them."""
        written = form.get("member")
        if written is None:
            return None
        path = self._where(part, form["name"], "member")
        nodes, pods = (
            [Part(each, (*path, key, number)) for number, each in enumerate(written.get(key, ()))]
            for key in ("nodes", "pods")
        )
        return ReadMember(self._builder.member(nodes, pods))

    def _where(self, part: Part, name: str, key: str) -> Path:
        """Return where the key of a cluster is written: in the case, else in the file."""
        over = self._over
        if over is not None and key in over.value.get(name, {}):
            return (*over.path, name, key)
        return (*part.path, key) if key in part.value else part.path

    def _error(self, path: Path, message: str, *, advice: str = "", key: bool = False) -> Diagnostic:
        return self._document.error(path, codes.BAD_FIXTURE, message=message, advice=advice, key=key)


# --- a text with a fleet and nothing else --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FleetText:
    """What a text says that has the clusters of a fleet, one workload, and what a decision is made with."""

    written: WrittenFleet
    now: float
    """Unix seconds of the decision."""
    metrics: Metrics | None
    """None: it says nothing of metrics."""

    def signals(self, queries: Sequence[Query]) -> Signals | None:
        """Return what the queries answer; None if it says nothing of metrics."""
        return None if self.metrics is None else self.metrics.signals(queries, now=self.now)


def read_fleet_text(document: Document, *, now: float) -> FleetText:
    """Return a document with the keys `clusters`, `workload`, `workloads`, `metrics` and `now` of test files.

    now: Unix seconds of the decision, unless the document says it.

    Raises:
        DocumentError: it does not have that form; every problem has its place.
    """
    problems = _fleet_schema().check(document)
    if problems:
        raise DocumentError(problems)
    value: Json = document.value
    clusters, others = _listed(value, "clusters"), _listed(value, "workloads")
    problems = (*_left_open(document), *named_twice(document, clusters), *_templates(document, clusters))
    if problems:
        raise DocumentError(problems)
    at = unix_seconds(value["now"]) or 0.0 if "now" in value else now
    metrics = Part(value.get("metrics", {}), ("metrics",))
    suite = Suite(document, (), (), (), (), metrics, seed=0, cases=(), fleet=clusters, workloads=others)
    builder = CaseClusterBuilder(suite, (), scheduler="", kubernetes=DEFAULT_RULES)
    parts = FleetParts(clusters, Part(value["workload"], ("workload",)), others)
    written = WrittenFleet(document, builder, parts, now=at)
    return FleetText(written, at, Metrics().over(metrics.value) if "metrics" in value else None)


@cache
def _fleet_schema() -> DocumentSchema:
    whole: Json = json.loads(schema_text())
    kept = ("clusters", "workloads", "metrics", "now")
    properties: Mapping[str, Json] = {key: whole["properties"][key] for key in kept}
    workload = {"$ref": "#/$defs/workload", "description": "The workload to decide: it goes to `clusters`."}
    return DocumentSchema(
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["clusters", "workload"],
            "properties": {**properties, "workload": workload},
            "$defs": whole["$defs"],
        }
    )


def _listed(value: Json, key: str) -> tuple[Part, ...]:
    return tuple(Part(form, (key, number)) for number, form in enumerate(value.get(key, ())))


def _left_open(document: Document) -> list[Diagnostic]:
    """Return an error for each `${column}`: there is no table whose rows fill it in."""
    return [
        document.error(
            path, codes.BAD_FIXTURE, message=f"`${{{name}}}` stands for a column of a table", advice="write the value"
        )
        for path, name in unfilled(document.value)
    ]


def _templates(document: Document, clusters: Sequence[Part]) -> list[Diagnostic]:
    """Return an error for each pod of a member that names a template: there are none."""
    return [
        document.error(
            (*part.path, "member", "pods", number, "from"),
            codes.UNKNOWN_TEMPLATE,
            message=f"unknown template `{pod['from']}`",
            advice="write the pod out: there are no `templates` here",
        )
        for part in clusters
        for number, pod in enumerate(part.value.get("member", {}).get("pods", ()))
        if "from" in pod
    ]
