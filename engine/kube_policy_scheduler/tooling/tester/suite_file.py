"""A test file: its cases as values, read against its schema with templates and tables resolved, and written back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from importlib.resources import files
from itertools import product
from types import MappingProxyType
from typing import Any, TypeAlias

from kube_policy_scheduler.diagnostics import Diagnostic, Source, closest
from kube_policy_scheduler.documents.codes import WRONG_VALUE
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.schema import DocumentSchema
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError
from kube_policy_scheduler.documents.yaml_nodes import Step as PathStep
from kube_policy_scheduler.kubernetes_rules import (
    DEFAULT_RULES,
    NOTHING_CHOSEN,
    KubernetesChoice,
    KubernetesVersion,
    VersionError,
    parse_gates,
)
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.times import parse_duration, unix_seconds
from kube_policy_scheduler.tooling.short_forms import Json, merged
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.metrics import Metrics
from kube_policy_scheduler.wording import some

Path: TypeAlias = tuple[PathStep, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the file: its value and where it stands."""

    value: Any
    path: Path


@dataclass(frozen=True, slots=True)
class Step:
    """Pods that are decided one after the other."""

    path: Path
    pod: Part | FixtureObject
    """A short form, templates resolved, or an object of another file."""
    count: int = 1
    every_seconds: float = 0.0
    """Time between two of them."""
    after_seconds: float = 0.0
    """Time before the first of them."""
    expect: Part | None = None
    """What must hold for each of them."""
    finished: Part | None = None
    """Names of pods that end before the first of them."""
    queued_seconds: float | None = None
    """Of a queue: how long it has waited; None: as the case says."""
    base: str = "pod"
    """What its pods are called, where they are several or the short form says no name."""


class Kind(Enum):
    """How the pods of a case are decided."""

    ONE = "one"
    SEQUENCE = "sequence"
    """One after the other: a placed pod is in the cluster for the next one."""
    QUEUE = "queue"
    """Not at all: they wait, and are asked for their turns."""
    FORALL = "forall"
    """Each alone, in the same cluster."""
    WORKLOAD = "workload"
    """A workload goes to the clusters of a fleet."""


@dataclass(frozen=True, slots=True)
class Case:
    """Pods to decide, and what is expected of the decisions."""

    name: str
    path: Path
    steps: tuple[Step, ...]
    """One step with one pod, unless the case is a sequence."""
    expect: Part
    start: float
    """Unix seconds of the clock's zero: series begin there."""
    at_seconds: float
    """How long after `start` the decision is."""
    queued_seconds: float
    """How long the pod has waited."""
    attempts: int
    tie_ok: bool
    skip: str = ""
    """Why the case is left out, "" where it is not."""
    todo: str = ""
    """Why the case does not hold yet, "" where it must."""
    nodes: tuple[Part, ...] = ()
    """Laid over the file's nodes."""
    pods: tuple[Part, ...] = ()
    """Beside the file's pods."""
    metrics: Part | None = None
    kind: Kind = Kind.ONE
    only_schedulable: bool = False
    """Of a property: pods that fit nowhere are left out."""
    workload: Part | None = None
    """Instead of pods: what goes to clusters of the fleet."""
    fleet: Part | None = None
    """Laid over the file's clusters, by name."""
    others: tuple[Part, ...] = ()
    """Workloads that run beside those of the file."""
    passes: int = 0
    """How often replicas are moved by `rebalance` before the placement is compared."""

    @property
    def now(self) -> float:
        """Return when the first decision is made, unix seconds."""
        return self.start + self.at_seconds


@dataclass(frozen=True, slots=True)
class Invalid:
    """A policy that must be rejected, and for what."""

    name: str
    path: Path
    text: str | None
    """The policy itself; None: it is in `file`."""
    file: Part | None
    code: str
    """"": any error will do."""
    at: str
    """`LINE:COLUMN`, or `LINE`; "": anywhere."""
    message: str
    """A part of the message, or `/a regular expression/`."""
    skip: str = ""
    todo: str = ""


@dataclass(frozen=True, slots=True)
class ForAll:
    """A property that must hold for every pod of some files."""

    case: Case
    """Without steps."""
    files: tuple[Part, ...]
    """Files and folders of pods, as written."""
    templates: tuple[Step, ...]
    """The file's own templates that are meant."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One test file."""

    document: Document
    policies: tuple[Part, ...]
    """Paths as written."""
    clusters: tuple[Part, ...]
    """Paths as written."""
    nodes: tuple[Part, ...]
    pods: tuple[Part, ...]
    """Templates resolved."""
    metrics: Part
    seed: int
    cases: tuple[Case, ...]
    """Table cases are several."""
    kubernetes: KubernetesChoice = NOTHING_CHOSEN
    """By whose rules pods are decided; what it does not say, the cluster files say."""
    invalid: tuple[Invalid, ...] = ()
    forall: tuple[ForAll, ...] = ()
    fleet: tuple[Part, ...] = ()
    """The clusters of a fleet, for cases with a workload."""
    workloads: tuple[Part, ...] = ()
    """What runs in them already."""


@dataclass(frozen=True, slots=True)
class Fixtures:
    """What the files hold that a suite names. Keys are paths as they are written there."""

    cluster: tuple[FixtureObject, ...] = ()
    pods: Mapping[str, tuple[FixtureObject, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """For `forall`."""
    policies: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    """For `invalid`."""


def did_you_mean(word: str, known: Sequence[str], *, none: str = "") -> str:
    """Return advice for a word that is not among those known."""
    if not known:
        return none
    meant = closest(word, known)
    if meant is not None:
        return f"did you mean `{meant}`?"
    return f"the known names are: {some(sorted(known), limit=12)}"


_PLACE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def table_rows(each: Any) -> list[Mapping[str, Any]]:
    """Return the rows of `each`: a list of rows, or columns with their values, of which every combination is meant."""
    if isinstance(each, Mapping):
        return [dict(zip(each, values, strict=True)) for values in product(*each.values())]
    return list(each)


def filled(form: Any, row: Mapping[str, Any]) -> Any:
    """Return a form with the row's values put in; a text that is nothing but `${column}` becomes the value itself."""
    match form:
        case str():
            whole = _PLACE.fullmatch(form)
            if whole is not None and whole[1] in row:
                return row[whole[1]]
            return _PLACE.sub(lambda found: as_text(row[found[1]]) if found[1] in row else found[0], form)
        case dict():
            return {filled_key(key, row): filled(value, row) for key, value in form.items()}
        case list():
            return [filled(item, row) for item in form]
        case _:
            return form


def filled_key(key: str, row: Mapping[str, Any]) -> str:
    """Return a key with the row's values put in."""
    return _PLACE.sub(lambda found: as_text(row[found[1]]) if found[1] in row else found[0], key)


def unfilled(form: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield every `${column}` that is left, as path and column."""
    match form:
        case str():
            yield from ((path, name) for name in _PLACE.findall(form))
        case dict():
            for key, value in form.items():
                yield from (((*path, key), name) for name in _PLACE.findall(key))
                yield from unfilled(value, (*path, key))
        case list():
            for index, item in enumerate(form):
                yield from unfilled(item, (*path, index))
        case _:
            return


def columns_used(form: Any) -> frozenset[str]:
    """Return the columns that a form asks for."""
    return frozenset(name for _, name in unfilled(form))


def row_label(row: Mapping[str, Any]) -> str:
    """Return what tells a row from the others, for the names of cases."""
    return ", ".join(f"{name} {as_text(value)}" for name, value in row.items())


def table_columns(table: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the columns of a table, in order."""
    return tuple(dict.fromkeys(name for row in table for name in row))


def as_text(value: Any) -> str:
    """Return a value as it is written."""
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return ""
        case float() | int():
            return f"{value:.10g}"
        case _:
            return str(value)


DEFAULT_NOW = "2026-01-01T00:00:00Z"
SCHEMA_FILE = "policy-test.schema.json"
TEMPLATES = "templates"
"""In `forall`, instead of a file: every template of this file."""


def schema_text() -> str:
    """Return the published schema of test files."""
    return files(__package__).joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


@cache
def _schema(definition: str = "") -> DocumentSchema:
    whole: Json = json.loads(schema_text())
    return DocumentSchema({"$ref": f"#/$defs/{definition}", "$defs": whole["$defs"]} if definition else whole)


def read_suite(document: Document) -> Suite:
    """Return a parsed document as a suite.

    Raises:
        DocumentError: it does not have the form of a test file; every problem has its place.
    """
    problems = _schema().check(document)
    if problems:
        raise DocumentError(problems)
    return _Reader(document).suite()


def read_metrics(document: Document) -> Metrics:
    """Return a document that is what stands under `metrics` of a test file.

    Raises:
        DocumentError: it is not; every problem has its place.
    """
    problems = _schema("metrics").check(document)
    if problems:
        raise DocumentError(problems)
    return Metrics().over(document.value)


_OF_PODS = ("nodes", "pods", "queued", "attempts", "tie")
_OF_WORKLOADS = ("clusters", "workloads", "passes")
"""Keys of a case that only pods, or only workloads, are decided by."""


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._value: Json = document.value
        self._found: list[Diagnostic] = []
        self._templates: dict[str, Json] = {}

    def suite(self) -> Suite:
        value = self._value
        for key in value.keys() - {"cases", "forall", "invalid"}:
            self._report_unfilled(value[key], (key,))
        for name in value.get("templates", {}):
            self._templates[name] = self._template(name, ("templates", name), ())
        suite = Suite(
            document=self._document,
            policies=_several(value.get("policy", []), ("policy",)),
            clusters=_several(value.get("cluster", []), ("cluster",)),
            nodes=_parts(value, (), "nodes"),
            fleet=self._fleet(value),
            workloads=_parts(value, (), "workloads"),
            pods=self._pods(value, ()),
            metrics=Part(value.get("metrics", {}), ("metrics",)),
            seed=value.get("seed", 0),
            kubernetes=self._kubernetes(value),
            cases=tuple(
                case
                for index, form in enumerate(value.get("cases", ()))
                for case in self._cases(form, ("cases", index))
            ),
            invalid=tuple(_invalid(form, ("invalid", index)) for index, form in enumerate(value.get("invalid", ()))),
            forall=tuple(
                each
                for index, form in enumerate(value.get("forall", ()))
                for each in self._properties(form, ("forall", index))
            ),
        )
        self._report_duplicates([*suite.cases, *suite.invalid, *(each.case for each in suite.forall)])
        if self._found:
            raise DocumentError(self._found)
        return suite

    # --- cases ---------------------------------------------------------------------------------------

    def _kubernetes(self, value: Json) -> KubernetesChoice:
        version = KubernetesVersion.parse(value["kubernetes"]) if "kubernetes" in value else None
        gates: dict[str, bool] = {}
        for index, text in enumerate(value.get("featureGates", ())):
            try:
                gate = parse_gates(text)
                KubernetesChoice(version, gate if version is not None else {}).rules(lambda: DEFAULT_RULES)
            except VersionError as error:
                self._found.append(self._error(("featureGates", index), WRONG_VALUE, str(error)))
            else:
                gates |= gate
        return KubernetesChoice(version, gates)

    def _cases(self, form: Json, path: Path) -> list[Case]:
        return [self._case(written, path) for written in self._written_out(form, path, "case")]

    def _fleet(self, value: Json) -> tuple[Part, ...]:
        parts = _parts(value, (), "clusters")
        self._found += named_twice(self._document, parts)
        return tuple(Part(self._with_pods(part.value, part.path), part.path) for part in parts)

    def _with_pods(self, cluster: Json, path: Path) -> Json:
        """Return a cluster with the pods of its `member` as their templates say."""
        member = cluster.get("member", {})
        if "pods" not in member:
            return cluster
        pods = [part.value for part in self._pods(member, (*path, "member"))]
        return {**cluster, "member": {**member, "pods": pods}}

    def _case(self, form: Json, path: Path) -> Case:
        steps: tuple[Step, ...]
        useless, what = (_OF_PODS, "a workload") if "workload" in form else (_OF_WORKLOADS, "pods")
        for key in useless:
            if key in form:
                message = f"`{key}` has no effect in a case with {what}"
                self._found.append(self._error((*path, key), codes.BAD_FIXTURE, message, advice="remove it", key=True))
        if "sequence" in form:
            sequence = form["sequence"]
            steps = (
                (self._step(sequence, (*path, "sequence")),)
                if isinstance(sequence, dict)
                else tuple(self._step(one, (*path, "sequence", index)) for index, one in enumerate(sequence))
            )
        elif "workload" in form:
            fleet = None
            if "clusters" in form:
                over = {
                    name: self._with_pods(each, (*path, "clusters", name)) for name, each in form["clusters"].items()
                }
                fleet = Part(over, (*path, "clusters"))
            asked = Part(form["workload"], (*path, "workload"))
            others, passes = _parts(form, path, "workloads"), form.get("passes", 0)
            frame = self._frame(form, path)
            return replace(frame, kind=Kind.WORKLOAD, workload=asked, fleet=fleet, others=others, passes=passes)
        elif "queue" in form:
            steps = tuple(self._step(one, (*path, "queue", index)) for index, one in enumerate(form["queue"]))
        else:
            steps = (Step((*path, "pod"), self._pod(form["pod"], (*path, "pod"))),)
        kind = Kind.SEQUENCE if "sequence" in form else Kind.QUEUE if "queue" in form else Kind.ONE
        return replace(self._frame(form, path), steps=steps, kind=kind)

    def _frame(self, form: Json, path: Path) -> Case:
        """Return a case without its pods."""
        whole = self._value
        return Case(
            name=form["name"],
            path=path,
            steps=(),
            expect=Part(form.get("expect", {}), (*path, "expect")),
            start=unix_seconds(form.get("now", whole.get("now", DEFAULT_NOW))) or 0.0,
            at_seconds=parse_duration(str(form.get("at", whole.get("at", "0s")))),
            queued_seconds=parse_duration(form.get("queued", "0s")),
            attempts=form.get("attempts", 0),
            tie_ok=form.get("tie", whole.get("tie", "fail")) == "ok",
            skip=form.get("skip", ""),
            todo=form.get("todo", ""),
            nodes=_parts(form, path, "nodes"),
            pods=self._pods(form, path),
            metrics=Part(form["metrics"], (*path, "metrics")) if "metrics" in form else None,
        )

    def _step(self, form: Json, path: Path) -> Step:
        return Step(
            path=path,
            pod=self._pod(form["pod"], (*path, "pod")),
            count=form.get("count", 1),
            every_seconds=parse_duration(form.get("every", "0s")),
            after_seconds=parse_duration(form.get("after", "0s")),
            expect=Part(form["expect"], (*path, "expect")) if "expect" in form else None,
            finished=Part(form["finished"], (*path, "finished")) if "finished" in form else None,
            queued_seconds=parse_duration(form["queued"]) if "queued" in form else None,
            base=_base(form["pod"]),
        )

    def _written_out(self, form: Json, path: Path, definition: str) -> list[Json]:
        """Return the cases that a table case stands for, each held against the schema again."""
        if "each" not in form:
            self._report_unfilled(form, path)
            return [form]
        rows = table_rows(form["each"])
        used, known = columns_used({**form, "each": None}), table_columns(rows)
        for name in known:
            if name not in used:
                message = f"the case uses no `${{{name}}}`"
                self._found.append(self._error((*path, "each"), codes.UNKNOWN_COLUMN, message, key=True))
        plain = {key: value for key, value in form.items() if key != "each"}
        done = []
        for row in rows:
            for place, name in unfilled(plain, path):
                if name not in row:
                    advice = did_you_mean(name, tuple(row))
                    message = f"`each` has no `{name}` in the row {row_label(row)}"
                    self._found.append(self._error(place, codes.UNKNOWN_COLUMN, message, advice=advice))
            written = filled(plain, row)
            written["name"] = as_text(written["name"])
            if written["name"] == plain["name"]:
                written["name"] = f"{plain['name']} ({row_label(row)})"
            problems = _schema(definition).check(self._document, at=path, instead=written)
            if problems:
                self._found.extend(problems)
                continue
            done.append(written)
        return done

    def _report_unfilled(self, form: Any, path: Path) -> None:
        for place, name in unfilled(form, path):
            message = f"`${{{name}}}` is undefined: there is no `each`"
            self._found.append(self._error(place, codes.UNKNOWN_COLUMN, message))

    # --- properties ----------------------------------------------------------------------------------

    def _properties(self, form: Json, path: Path) -> list[ForAll]:
        return [self._property(written, path) for written in self._written_out(form, path, "property")]

    def _property(self, form: Json, path: Path) -> ForAll:
        wanted = _several(form["pods"], (*path, "pods"))
        rest = {key: value for key, value in form.items() if key != "pods"}
        templates = [
            Step(("templates", name), Part(pod, ("templates", name)), base=name)
            for part in wanted
            if part.value == TEMPLATES
            for name, pod in self._templates.items()
        ]
        if not templates and any(part.value == TEMPLATES for part in wanted):
            self._found.append(self._error((*path, "pods"), codes.UNKNOWN_TEMPLATE, "this file has no `templates`"))
        return ForAll(
            case=replace(
                self._frame(rest, path), kind=Kind.FORALL, only_schedulable=form.get("where") == "schedulable"
            ),
            files=tuple(part for part in wanted if part.value != TEMPLATES),
            templates=tuple(templates),
        )

    # --- pods and templates --------------------------------------------------------------------------

    def _pod(self, form: str | Json, path: Path) -> Part:
        if isinstance(form, str):
            return Part(self._resolved({"from": form}, at=path), path)
        return Part(self._resolved(form, at=(*path, "from")), path)

    def _pods(self, form: Mapping[str, Any], path: Path) -> tuple[Part, ...]:
        return tuple(self._pod(part.value, part.path) for part in _parts(form, path, "pods"))

    def _template(self, name: str, path: Path, seen: tuple[str, ...]) -> Json:
        form: Json = self._value["templates"][name]
        under = form.get("from")
        if under is None:
            return form
        if under in (*seen, name):
            message = f"template `{under}` refers to itself"
            self._found.append(self._error((*path, "from"), codes.UNKNOWN_TEMPLATE, message))
            return form
        if under not in self._value["templates"]:
            self._unknown_template(under, (*path, "from"))
            return form
        return laid_over(self._template(under, ("templates", under), (*seen, name)), form)

    def _resolved(self, form: Json, *, at: Path) -> Json:
        name = form.get("from")
        if name is None:
            return form
        if name not in self._templates:
            self._unknown_template(name, at)
            return form
        return laid_over(self._templates[name], form)

    def _unknown_template(self, name: str, path: Path) -> None:
        known = list(self._value.get("templates", {}))
        advice = did_you_mean(name, known, none="this file has no `templates`")
        self._found.append(self._error(path, codes.UNKNOWN_TEMPLATE, f"unknown template `{name}`", advice=advice))

    def _report_duplicates(self, cases: Sequence[Case | Invalid]) -> None:
        first: dict[str, Case | Invalid] = {}
        for case in cases:
            if first.setdefault(case.name, case) is not case:
                message = f"two cases have the name `{case.name}`"
                self._found.append(self._error((*case.path, "name"), codes.DUPLICATE_CASE, message))

    def _error(self, path: Path, code: Code, message: str, *, advice: str = "", key: bool = False) -> Diagnostic:
        return self._document.error(path, code, message=message, advice=advice, key=key)


def named_twice(document: Document, clusters: Sequence[Part]) -> list[Diagnostic]:
    """Return an error for each cluster of a fleet that has the name of another one."""
    known: set[str] = set()
    found = []
    for part in clusters:
        name = part.value["name"]
        if name in known:
            message = f"two clusters have the name `{name}`"
            advice = "give one of them another name"
            found.append(document.error((*part.path, "name"), codes.BAD_FIXTURE, message=message, advice=advice))
        known.add(name)
    return found


def laid_over(base: Json, form: Json) -> Json:
    """Return one short form laid over another; lists and plain values are replaced."""
    return merged(base, {key: value for key, value in form.items() if key != "from"})


def _invalid(form: Json, path: Path) -> Invalid:
    text, file = form.get("text"), form.get("policy")
    shown = next((line for line in (text or "").splitlines() if line.strip()), "").strip()
    return Invalid(
        name=form.get("name") or f"invalid: {shown or file}",
        path=path,
        text=text,
        file=Part(file, (*path, "policy")) if file is not None else None,
        code=form.get("code", ""),
        at=str(form.get("at", "")),
        message=form.get("message", ""),
        skip=form.get("skip", ""),
        todo=form.get("todo", ""),
    )


def _base(pod: str | Json) -> str:
    """Return what pods of a step are called: by their own name, or by that of their template."""
    return pod if isinstance(pod, str) else str(pod.get("name") or pod.get("from") or "pod")


def _several(value: Any, path: Path) -> tuple[Part, ...]:
    if isinstance(value, str):
        return (Part(value, path),)
    return tuple(Part(item, (*path, index)) for index, item in enumerate(value))


def _parts(form: Mapping[str, Any], path: Path, key: str) -> tuple[Part, ...]:
    return tuple(Part(item, (*path, key, index)) for index, item in enumerate(form.get(key, ())))


WIDTH = 100
"""A value that fits into a line of this many characters is written in one, `{cpu: 500m, mem: 1Gi}`."""
_ORDER = (
    "policy",
    "cluster",
    "clusters",
    "kubernetes",
    "featureGates",
    "now",
    "at",
    "seed",
    "tie",
    "nodes",
    "pods",
    "metrics",
    "templates",
    "cases",
    "forall",
    "invalid",
)
_CASE_ORDER = ("name", "skip", "todo", "each", "now", "at", "tie", "queued", "attempts", "nodes", "pods", "metrics")
_WRITTEN_OUT = frozenset({"clusters", "nodes", "pods", "metrics", "templates", "cases", "forall", "invalid"})
"""Keys of a file whose entries are on separate lines."""
_WHOLE = 1e15
"""Below this, whole floats are written as whole numbers."""
_SCHEMA_LINE = "# yaml-language-server: $schema={}\n"
_PLAIN = re.compile(r"[A-Za-z_/.(][^#:,\[\]{}\"'&*!|>%@`\\\x00-\x1f\x7f-\x9f]*")
_PLAIN_WITH_MARKS = re.compile(r"[A-Za-z0-9_/.][A-Za-z0-9_/.:+-]*[A-Za-z0-9_/.]")
"""Such as times and images: a colon that no blank follows is no mark."""
_NOT_A_TEXT = re.compile(
    r"~|null|true|false|yes|no|on|off|y|n|[-+]?[0-9._]+([eE][-+]?[0-9]+)?|0[ox][0-9a-fA-F]+|[-+]?\.(inf|nan)"
    r"|[-+]?[0-9]+(:[0-9]+)+(\.[0-9]*)?|=|<<",
    re.IGNORECASE,
)
"""What this or an older version of YAML takes for something else than a text."""


def suite_text(form: Mapping[str, Any], *, schema: str = "", comment: str = "") -> str:
    """Return the text of a test file.

    Args:
        form: the file's values, as the schema describes them; the order of its keys is that of the documentation.
        schema: where the schema is, for editors; "": not said.
        comment: what stands above, lines without `#`.
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    for key in _ordered(form, _ORDER):
        value = form[key]
        if lines and key in _WRITTEN_OUT:
            lines.append("")
        lines += _entry(key, value, written_out=key in _WRITTEN_OUT)
    return (_SCHEMA_LINE.format(schema) if schema else "") + "\n".join(lines) + "\n"


def _ordered(form: Mapping[str, Any], order: tuple[str, ...]) -> list[str]:
    return [*(key for key in order if key in form), *(key for key in form if key not in order)]


def _entry(key: str, value: Any, *, written_out: bool) -> Iterator[str]:
    """Yield the lines of one key of a file."""
    if not written_out or not isinstance(value, Mapping | list) or not value:
        yield from _lines(value, head=f"{scalar(key)}:", indent=0)
        return
    yield f"{scalar(key)}:"
    if isinstance(value, Mapping):
        for inner, item in value.items():
            yield from _lines(item, head=f"  {scalar(inner)}:", indent=2)
        return
    for item in value:
        if key in ("cases", "forall") and isinstance(item, Mapping) and item:
            yield from _case(item)
        else:
            yield from _lines(item, head="-", indent=0)


def _case(case: Mapping[str, Any]) -> Iterator[str]:
    """Yield a case: its name first, `expect` last."""
    keys = [key for key in _ordered(case, _CASE_ORDER) if key != "expect"]
    keys += [key for key in ("expect",) if key in case]
    mark = "-"
    for key in keys:
        yield from _lines(case[key], head=f"{mark} {scalar(key)}:", indent=2)
        mark = " "


def _lines(value: Any, *, head: str, indent: int) -> Iterator[str]:
    """Yield a value behind a head: in one line where it fits, below it where not."""
    line = f"{head} {flow(value)}"
    if len(line) <= WIDTH or not isinstance(value, Mapping | list) or not value:
        yield line
        return
    # a mapping that is an item of a list begins in the line of the dash
    dash = head.rstrip().endswith("-")
    pad = " " * (indent + 2)
    if not dash:
        yield head
    first = f"{head} " if dash else pad
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _lines(item, head=f"{first}{scalar(key)}:", indent=len(pad))
            first = pad
        return
    for item in value:
        yield from _lines(item, head=f"{first}-", indent=len(first))
        first = pad


def flow(value: Any) -> str:
    """Return a value in one line."""
    match value:
        case Mapping():
            inside = ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items())
            return f"{{{inside}}}"
        case list() | tuple():
            return f"[{', '.join(flow(item) for item in value)}]"
        case _:
            return scalar(value)


def scalar(value: Any) -> str:
    """Return a text, number, truth or null so that it is read as the same."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if value != value or value in (float("inf"), float("-inf")):
            return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[str(value)]
        case int() | float():
            return f"{value:.0f}" if value == int(value) and abs(value) < _WHOLE else repr(value)
        case _:
            return _text(str(value))


def _text(text: str) -> str:
    plain = _PLAIN.fullmatch(text) or _PLAIN_WITH_MARKS.fullmatch(text)
    if plain and not _NOT_A_TEXT.fullmatch(text) and text == text.strip() and "  " not in text:
        return text
    if text.isprintable() and "'" not in text:
        return f"'{text}'"
    return f'"{"".join(_ESCAPES.get(one) or _escaped(one) for one in text)}"'


_ESCAPES = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def _escaped(character: str) -> str:
    """Return a character as it may stand between double quotes."""
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
