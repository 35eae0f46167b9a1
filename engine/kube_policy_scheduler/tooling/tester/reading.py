"""A test file, checked against its schema, to a suite: templates resolved, tables written out. Reads no other file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.schema import DocumentSchema
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.times import parse_duration, unix_seconds
from kube_policy_scheduler.tooling.tester import codes, table
from kube_policy_scheduler.tooling.tester.metrics import Metrics
from kube_policy_scheduler.tooling.tester.short_forms import Json, merged
from kube_policy_scheduler.tooling.tester.suite import (
    Case,
    ForAll,
    Invalid,
    Kind,
    Part,
    Path,
    Step,
    Suite,
    did_you_mean,
)

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
            pods=self._pods(value, ()),
            metrics=Part(value.get("metrics", {}), ("metrics",)),
            seed=value.get("seed", 0),
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

    def _cases(self, form: Json, path: Path) -> list[Case]:
        return [self._case(written, path) for written in self._written_out(form, path, "case")]

    def _case(self, form: Json, path: Path) -> Case:
        steps: tuple[Step, ...]
        if "sequence" in form:
            sequence = form["sequence"]
            steps = (
                (self._step(sequence, (*path, "sequence")),)
                if isinstance(sequence, dict)
                else tuple(self._step(one, (*path, "sequence", index)) for index, one in enumerate(sequence))
            )
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
        rows = table.rows(form["each"])
        used, known = table.columns_used({**form, "each": None}), table.columns(rows)
        for name in known:
            if name not in used:
                message = f"the case uses no `${{{name}}}`"
                self._found.append(self._error((*path, "each"), codes.UNKNOWN_COLUMN, message, key=True))
        plain = {key: value for key, value in form.items() if key != "each"}
        done = []
        for row in rows:
            for place, name in table.unfilled(plain, path):
                if name not in row:
                    advice = did_you_mean(name, tuple(row))
                    message = f"`each` has no `{name}` in the row {table.label(row)}"
                    self._found.append(self._error(place, codes.UNKNOWN_COLUMN, message, advice=advice))
            written = table.filled(plain, row)
            written["name"] = table.as_text(written["name"])
            if written["name"] == plain["name"]:
                written["name"] = f"{plain['name']} ({table.label(row)})"
            problems = _schema(definition).check(self._document, at=path, instead=written)
            if problems:
                self._found.extend(problems)
                continue
            done.append(written)
        return done

    def _report_unfilled(self, form: Any, path: Path) -> None:
        for place, name in table.unfilled(form, path):
            message = f"`${{{name}}}` stands for nothing: there is no `each`"
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
            message = f"template `{under}` is made from itself"
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
                message = f"two cases are named `{case.name}`"
                self._found.append(self._error((*case.path, "name"), codes.DUPLICATE_CASE, message))

    def _error(self, path: Path, code: Code, message: str, *, advice: str = "", key: bool = False) -> Diagnostic:
        return self._document.error(path, code, message=message, advice=advice, key=key)


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
