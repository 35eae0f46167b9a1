"""A test file, checked against its schema, as values that still know where they stand. Reads no other file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from engine.cluster.timestamps import unix_seconds
from engine.diagnostics import Diagnostic, closest
from engine.documents.schema import DocumentSchema
from engine.documents.shape import parse_duration_seconds
from engine.documents.yaml_document import Document, DocumentError
from engine.documents.yaml_nodes import Step
from engine.lang.codes import Code
from engine.tooling.tester import codes
from engine.tooling.tester.short_forms import Json, merged

DEFAULT_NOW = "2026-01-01T00:00:00Z"
SCHEMA_FILE = "policy-test.schema.json"
Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the file: its value and where it stands."""

    value: Any
    path: Path


@dataclass(frozen=True, slots=True)
class Case:
    """One pod to decide, and what is expected of the decision."""

    name: str
    path: Path
    pod: Part
    """The pod's short form, templates resolved."""
    expect: Part
    now: float
    """Unix seconds."""
    queued_seconds: float
    """How long the pod has waited."""
    attempts: int
    tie_ok: bool
    skip: str
    """Why the case is left out, "" where it is not."""
    nodes: tuple[Part, ...]
    """Laid over the file's nodes."""
    pods: tuple[Part, ...]
    """Beside the file's pods."""
    metrics: Part | None


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


def schema_text() -> str:
    """Return the published schema of test files."""
    return files(__package__).joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


@cache
def _schema() -> DocumentSchema:
    return DocumentSchema(json.loads(schema_text()))


def read_suite(document: Document) -> Suite:
    """Return a parsed document as a suite.

    Raises:
        DocumentError: it does not have the form of a test file; every problem has its place.
    """
    problems = _schema().check(document)
    if problems:
        raise DocumentError(problems)
    return _Reader(document).suite()


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._value: Json = document.value
        self._found: list[Diagnostic] = []
        self._templates: dict[str, Json] = {}

    def suite(self) -> Suite:
        value = self._value
        for name in value.get("templates", {}):
            self._templates[name] = self._template(name, ("templates", name), ())
        suite = Suite(
            document=self._document,
            policies=_several(value["policy"], ("policy",)),
            clusters=_several(value.get("cluster", []), ("cluster",)),
            nodes=_parts(value, (), "nodes"),
            pods=self._pods(value, ()),
            metrics=Part(value.get("metrics", {}), ("metrics",)),
            seed=value.get("seed", 0),
            cases=tuple(self._case(form, ("cases", index)) for index, form in enumerate(value["cases"])),
        )
        self._report_duplicates(suite.cases)
        if self._found:
            raise DocumentError(self._found)
        return suite

    def _case(self, form: Json, path: Path) -> Case:
        whole = self._value
        pod: Any = form["pod"]
        pod_path: Path = (*path, "pod")
        if isinstance(pod, str):
            pod = {"from": pod}
            resolved = self._resolved(pod, pod_path, at=pod_path)
        else:
            resolved = self._resolved(pod, pod_path, at=(*pod_path, "from"))
        return Case(
            name=form["name"],
            path=path,
            pod=Part(resolved, pod_path),
            expect=Part(form["expect"], (*path, "expect")),
            now=unix_seconds(form.get("now", whole.get("now", DEFAULT_NOW))) or 0.0,
            queued_seconds=parse_duration_seconds(form.get("queued", "0s")),
            attempts=form.get("attempts", 0),
            tie_ok=form.get("tie", whole.get("tie", "fail")) == "ok",
            skip=form.get("skip", ""),
            nodes=_parts(form, path, "nodes"),
            pods=self._pods(form, path),
            metrics=Part(form["metrics"], (*path, "metrics")) if "metrics" in form else None,
        )

    def _pods(self, form: Mapping[str, Any], path: Path) -> tuple[Part, ...]:
        return tuple(
            Part(self._resolved(part.value, part.path, at=(*part.path, "from")), part.path)
            for part in _parts(form, path, "pods")
        )

    def _template(self, name: str, path: Path, seen: tuple[str, ...]) -> Json:
        form: Json = self._value["templates"][name]
        under = form.get("from")
        if under is None:
            return form
        if under in (*seen, name):
            self._found.append(
                self._error((*path, "from"), codes.UNKNOWN_TEMPLATE, f"template `{under}` is made from itself")
            )
            return form
        if under not in self._value["templates"]:
            self._unknown_template(under, (*path, "from"))
            return form
        return laid_over(self._template(under, ("templates", under), (*seen, name)), form)

    def _resolved(self, form: Json, path: Path, *, at: Path) -> Json:
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
        message = f"unknown template `{name}`"
        self._found.append(self._error(path, codes.UNKNOWN_TEMPLATE, message, advice=advice))

    def _report_duplicates(self, cases: Sequence[Case]) -> None:
        first: dict[str, Case] = {}
        for case in cases:
            if first.setdefault(case.name, case) is not case:
                message = f"two cases are named `{case.name}`"
                self._found.append(self._error((*case.path, "name"), codes.DUPLICATE_CASE, message))

    def _error(self, path: Path, code: Code, message: str, *, advice: str = "") -> Diagnostic:
        return self._document.error(path, code, message=message, advice=advice)


def laid_over(base: Json, form: Json) -> Json:
    """Return one short form laid over another; lists and plain values are replaced."""
    return merged(base, {key: value for key, value in form.items() if key != "from"})


def did_you_mean(word: str, known: Sequence[str], *, none: str = "") -> str:
    """Return advice for a word that is not among those known."""
    if not known:
        return none
    meant = closest(word, known)
    if meant is not None:
        return f"did you mean `{meant}`?"
    shown = ", ".join(sorted(known)[:12])
    return f"known are: {shown}" + (f" and {len(known) - 12} more" if len(known) > 12 else "")


def _several(value: Any, path: Path) -> tuple[Part, ...]:
    if isinstance(value, str):
        return (Part(value, path),)
    return tuple(Part(item, (*path, index)) for index, item in enumerate(value))


def _parts(form: Mapping[str, Any], path: Path, key: str) -> tuple[Part, ...]:
    return tuple(Part(item, (*path, key, index)) for index, item in enumerate(form.get(key, ())))
