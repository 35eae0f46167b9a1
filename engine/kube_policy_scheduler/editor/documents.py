"""Test files and the configuration as an editor sees them: which schema they have, what is wrong, what they name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.diagnostics import Diagnostic, Source, in_order
from kube_policy_scheduler.documents.published import configuration_schema_text
from kube_policy_scheduler.documents.schema import DocumentSchema
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_document
from kube_policy_scheduler.editor.project import Project
from kube_policy_scheduler.editor.yaml_texts import MOST_CHARACTERS, Schema
from kube_policy_scheduler.tooling.tester.suite_file import read_suite, schema_text

_TEST_SUFFIX = ".test.yaml"
_POLICIES = re.compile(r"^policy:[ \t]*(.*(?:\n[ \t]*-.*)*)", re.MULTILINE)
_FILE = re.compile(r"[\w./-]+\.policy\b")
_TEMPLATES = re.compile(r"^templates:[^\n]*\n((?:[ \t]+[^\n]*\n?|\n)*)", re.MULTILINE)
_TEMPLATE = re.compile(r"^  (\w[\w.-]*):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EditedDocument:
    """A YAML file of ours."""

    source: Source
    schema: Schema
    is_test: bool

    def problems(self) -> tuple[Diagnostic, ...]:
        """Return what is wrong with it."""
        try:
            document = parse_document(self.source)
            if not self.is_test:
                return _configuration_check().check(document)
            read_suite(document)
        except DocumentError as error:
            return in_order(error.diagnostics)
        return ()


@cache
def _test_schema() -> Schema:
    schema: Schema = json.loads(schema_text())
    return schema


@cache
def _configuration_schema() -> Schema:
    schema: Schema = json.loads(configuration_schema_text())
    return schema


@cache
def _configuration_check() -> DocumentSchema:
    return DocumentSchema(_configuration_schema())


def edited_document(source: Source) -> EditedDocument | None:
    """Return a file with its schema; None where it is no file of ours."""
    if source.name.endswith(_TEST_SUFFIX):
        return EditedDocument(source, _test_schema(), is_test=True)
    if source.name.endswith((".yaml", ".yml")) and _is_configuration(source.text):
        return EditedDocument(source, _configuration_schema(), is_test=False)
    return None


def _is_configuration(text: str) -> bool:
    kind = _configuration_schema()["properties"]["kind"]["const"]
    return re.search(rf"^kind:[ \t]*[\"']?{re.escape(kind)}\b", text[:MOST_CHARACTERS], re.MULTILINE) is not None


def value_of(source: Source, *, written_at: int) -> Any:
    """Return the value of a file; while the line at an offset makes it no YAML, the value without that line."""
    start = source.text.rfind("\n", 0, written_at) + 1
    end = source.text.find("\n", written_at)
    without = source.text[:start] + (source.text[end:] if end >= 0 else "")
    for text in (source.text, without):
        try:
            return parse_document(Source(source.name, text)).value
        except DocumentError:
            continue
    return None


def policies_of(source: Source) -> frozenset[str]:
    """Return the names, without folders, of the policy files that a test file names; also of one that is no YAML."""
    match = _POLICIES.search(source.text)
    return frozenset(found.rpartition("/")[2] for found in _FILE.findall(match[1])) if match else frozenset()


def templates_of(source: Source) -> tuple[str, ...]:
    """Return the templates of a test file; also of one that is no YAML."""
    match = _TEMPLATES.search(source.text)
    return tuple(_TEMPLATE.findall(match[1])) if match else ()


def queries_of(project: Project, name: str) -> Iterator[str]:
    """Yield the queries of the policies that a source is a part of."""
    for policy in project.checked.policies:
        if policy.source.name == name:
            yield from (query.promql for query in policy.inputs if isinstance(query, Query))
