"""Recorded clusters: files of Kubernetes objects as `kubectl get -o yaml` prints them. Knows no kind by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Source
from kube_policy_scheduler.documents.codes import NOT_AN_OBJECT, WRONG_VALUE
from kube_policy_scheduler.documents.schema import DocumentSchema
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_documents, read_source
from kube_policy_scheduler.documents.yaml_nodes import Step

T = TypeVar("T")

_TEXTS = {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
_OBJECT = DocumentSchema(
    {
        "type": "object",
        "required": ["metadata"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "generateName": {"type": "string"},
                    "namespace": {"type": "string"},
                    "labels": _TEXTS,
                    "annotations": _TEXTS,
                },
            },
            "spec": {"type": ["object", "null"]},
            "status": {"type": ["object", "null"]},
        },
    }
)


@dataclass(frozen=True, slots=True)
class FixtureObject:
    """One Kubernetes object and where it stands."""

    value: dict[str, Any]
    """With `apiVersion` and `kind`, also where the list around it said them for all."""
    document: Document
    path: tuple[Step, ...]

    @property
    def kind(self) -> str:
        """The object's kind, such as `Node`."""
        return str(self.value["kind"])

    @property
    def name(self) -> str:
        """The object's name, or the beginning of it that the API server completes."""
        metadata = self.value["metadata"]
        return str(metadata.get("name") or metadata.get("generateName", ""))

    def error(self, path: Sequence[Step], message: str, *, advice: str = "") -> Diagnostic:
        """Return an error that points at a part of the object."""
        return self.document.error((*self.path, *path), WRONG_VALUE, message=message, advice=advice)

    def convert(self, struct: type[T]) -> T:
        """Return the object as a struct.

        Raises:
            DocumentError: a field has another type; it points at the field.
        """
        try:
            return msgspec.convert(self.value, struct, strict=True)
        except msgspec.ValidationError as error:
            text, _, place = str(error).partition(" - at `$")
            path = _steps(place)
            message = f"{self.kind} {self.name}: {_unquoted(text)}"
            raise DocumentError([self.error(path, message)]) from error


def read_objects(path: Path) -> tuple[FixtureObject, ...]:
    """Return the Kubernetes objects of a file with their places: lists, documents, single objects, YAML or JSON.

    Raises:
        DocumentError: the file is not that; each problem has its line.
    """
    return parse_objects(read_source(path))


def parse_objects(source: Source) -> tuple[FixtureObject, ...]:
    """Return the Kubernetes objects of a text with their places.

    Raises:
        DocumentError: as `read_objects`.
    """
    objects: list[FixtureObject] = []
    found: list[Diagnostic] = []
    for document in parse_documents(source):
        _collect(document, path=(), objects=objects, found=found, default={})
    if found:
        raise DocumentError(found)
    return tuple(objects)


def _collect(
    document: Document,
    *,
    path: tuple[Step, ...],
    objects: list[FixtureObject],
    found: list[Diagnostic],
    default: dict[str, str],
) -> None:
    value: Any = document.value
    for step in path:
        value = value[step]
    advice = "expected what `kubectl get nodes,pods -A -o yaml` prints"
    if not isinstance(value, dict):
        found.append(document.error(path, NOT_AN_OBJECT, message="not a Kubernetes object or list", advice=advice))
        return
    value = {**default, **value}
    absent = [key for key in ("apiVersion", "kind") if not isinstance(value.get(key), str)]
    if absent:
        message = f"not a Kubernetes object: it has no {' and no '.join(f'`{key}`' for key in absent)}"
        found.append(document.error(path, NOT_AN_OBJECT, message=message, advice=advice))
        return
    kind = value["kind"]
    if kind.endswith("List") and "spec" not in value:
        items = value.get("items")
        if not isinstance(items, list):
            message = f"a {kind} needs `items`, a list of objects"
            found.append(document.error((*path, "items"), NOT_AN_OBJECT, message=message, key=True))
            return
        # items of a NodeList, as the API server itself prints it, have neither kind nor apiVersion
        given = {"apiVersion": value["apiVersion"], "kind": kind[:-4]} if kind != "List" else {}
        for index in range(len(items)):
            _collect(document, path=(*path, "items", index), objects=objects, found=found, default=given)
        return
    if not _is_plain(value):
        problems = _OBJECT.check(document, at=path)
        found.extend(problems)
        if problems:
            return
    metadata = value["metadata"]
    if not metadata.get("name") and not metadata.get("generateName"):
        message = f"a {kind} needs `metadata.name`"
        found.append(document.error((*path, "metadata"), NOT_AN_OBJECT, message=message, key=True))
        return
    objects.append(FixtureObject(value=value, document=document, path=path))


def _is_plain(value: dict[str, Any]) -> bool:
    """Return whether an object surely has the form of `_OBJECT`: a thousand times faster than a schema's verdict."""
    metadata = value.get("metadata")
    return (
        type(metadata) is dict
        and type(metadata.get("name")) is str
        and metadata["name"] != ""
        and type(metadata.get("namespace", "")) is str
        and type(metadata.get("generateName", "")) is str
        and all(type(value.get(key, {})) is dict for key in ("spec", "status"))
        and all(
            type(texts := metadata.get(key, {})) is dict and all(type(text) is str for text in texts.values())
            for key in ("labels", "annotations")
        )
    )


def _steps(place: str) -> tuple[Step, ...]:
    """Turn msgspec's `.spec.containers[0].name` into steps; what it does not know (`[...]`) ends the path."""
    steps: list[Step] = []
    for name, index, unknown in re.findall(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])", place):
        if unknown:
            break
        steps.append(int(index) if index else name)
    return tuple(steps)


def _unquoted(text: str) -> str:
    return text[:1].lower() + text[1:].replace("`", "")
