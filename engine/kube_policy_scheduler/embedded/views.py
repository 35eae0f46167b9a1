"""The forms in which objects leave the server: as stored, in another API version, metadata only, kubectl's tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import orjson

from kube_policy_scheduler.embedded import selection
from kube_policy_scheduler.embedded.columns import COLUMNS, DEFAULT
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.resources import Resource
from kube_policy_scheduler.embedded.selection import Page
from kube_policy_scheduler.embedded.store import Entry

_RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_BACK = {old: new for new, old in _RENAMED.items()}


def to_core(event: Json) -> Json:
    """Return an events.k8s.io/v1 event as core v1."""
    done = {_RENAMED.get(key, key): value for key, value in event.items()}
    done["apiVersion"], done["kind"] = "v1", "Event"
    done.setdefault("involvedObject", {})
    done.setdefault("source", {})
    done.setdefault("firstTimestamp", None)
    done.setdefault("lastTimestamp", None)
    done.setdefault("reportingInstance", "")
    done.setdefault("reportingComponent", "")
    if series := done.get("series"):
        done["series"] = dict(series)
    return done


def to_new(event: Json) -> Json:
    """Return a core v1 event as events.k8s.io/v1."""
    done = {_BACK.get(key, key): value for key, value in event.items()}
    done["apiVersion"], done["kind"] = "events.k8s.io/v1", "Event"
    done.setdefault("eventTime", None)
    for name in ("reportingController", "reportingInstance"):
        if not done.get(name):
            done.pop(name, None)
    return done


def renamed_to_core(patch: Json) -> Json:
    """Return a merge patch of an events.k8s.io/v1 event as one of core v1."""
    done = {_RENAMED.get(key, key): value for key, value in patch.items()}
    done.pop("apiVersion", None)
    return done


class View(Protocol):
    """One form. `many` may assume that every object of the page is of the view's resource."""

    def one(self, body: bytes) -> bytes:
        """Return the answer for one object."""
        ...

    def many(self, page: Page) -> bytes:
        """Return the answer for a list."""
        ...

    def watched(self, body: bytes) -> bytes:
        """Return the `object` of a watch event."""
        ...


class Stored:
    """Objects as they are stored."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def one(self, body: bytes) -> bytes:
        """Return the stored bytes."""
        return body

    def many(self, page: Page) -> bytes:
        """Return the kind's List."""
        return selection.encode_list(self._resource, page)

    def watched(self, body: bytes) -> bytes:
        """Return the stored bytes."""
        return body


class OtherVersion:
    """Objects that are stored in one API version, in another one with the same fields."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._stored, self._shown = (
            b'{"apiVersion":"%s",' % version.encode() for version in (resource.stored_api_version, resource.api_version)
        )

    def one(self, body: bytes) -> bytes:
        """Return the object in the other version."""
        return body.replace(self._stored, self._shown, 1)

    def many(self, page: Page) -> bytes:
        """Return the kind's List."""
        return selection.encode_list(self._resource, page)

    def watched(self, body: bytes) -> bytes:
        """Return the object in the other version."""
        return self.one(body)


class NewEvents:
    """Events, stored as core v1, as events.k8s.io/v1."""

    def one(self, body: bytes) -> bytes:
        """Return the event in its newer form."""
        return orjson.dumps(to_new(orjson.loads(body)))

    def many(self, page: Page) -> bytes:
        """Return an events.k8s.io EventList."""
        items = [to_new(entry.decode()) for entry in page.entries]
        for item in items:
            del item["apiVersion"], item["kind"]
        head = {"kind": "EventList", "apiVersion": "events.k8s.io/v1", "metadata": page.metadata()}
        return orjson.dumps({**head, "items": items})

    def watched(self, body: bytes) -> bytes:
        """Return the event in its newer form."""
        return self.one(body)


class MetadataOnly:
    """`PartialObjectMetadata`, for clients that only need names and labels."""

    def one(self, body: bytes) -> bytes:
        """Return the object's metadata."""
        return orjson.dumps(_partial(orjson.loads(body)["metadata"]))

    def many(self, page: Page) -> bytes:
        """Return a list of metadata."""
        items = [{"metadata": entry.decode()["metadata"]} for entry in page.entries]
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": page.metadata()}
        return orjson.dumps({**head, "items": items})

    def watched(self, body: bytes) -> bytes:
        """Return the object's metadata."""
        return self.one(body)


def _partial(metadata: dict[str, object]) -> dict[str, object]:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}


def page_of(entries: list[Entry], revision: int) -> Page:
    """Return entries as a complete page."""
    return Page(entries, revision, "", None)


class Table:
    """A view that shows objects as rows; in a watch the columns are declared once."""

    def __init__(self, resource: Resource, *, include: str, now: Callable[[], datetime]) -> None:
        self._columns = COLUMNS.get(resource.kind, DEFAULT)
        self._include = include
        self._now = now
        self._declared = False

    def one(self, body: bytes) -> bytes:
        """Return a table of one row."""
        obj: Json = orjson.loads(body)
        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return self._table([obj], meta)

    def many(self, page: Page) -> bytes:
        """Return a table of a page."""
        return self._table([entry.decode() for entry in page.entries], page.metadata())

    def watched(self, body: bytes) -> bytes:
        """Return a table of one row, without its columns if they were declared before."""
        table = self.one(body) if not self._declared else self._rest(orjson.loads(body))
        self._declared = True
        return table

    def _rest(self, obj: Json) -> bytes:
        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return self._table([obj], meta, declare=False)

    def _table(self, objects: list[Json], meta: object, *, declare: bool = True) -> bytes:
        return orjson.dumps(
            {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": meta,
                "columnDefinitions": [column.definition() for column in self._columns] if declare else None,
                "rows": [self._row(obj) for obj in objects],
            }
        )

    def _row(self, obj: Json) -> Json:
        now = self._now()
        row: Json = {} if obj.get("kind") != "Pod" else _ended(obj)
        row |= {"cells": [column.cell(obj, now) for column in self._columns]}
        match self._include:
            case "Object":
                row["object"] = obj
            case "None":
                row["object"] = None
            case _:
                row["object"] = {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": obj["metadata"],
                }
        return row


def _ended(pod: Json) -> Json:
    """Return the mark by which clients see that a pod is through."""
    match (pod.get("status") or {}).get("phase"):
        case "Succeeded":
            text = "The pod has completed successfully."
        case "Failed":
            text = "The pod failed."
        case _:
            return {}
    reason = pod["status"]["phase"]
    return {"conditions": [{"type": "Completed", "status": "True", "reason": reason, "message": text}]}
