"""Objects as `Table`s, the form in which kubectl asks for what it shows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import orjson

from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.printing.columns import COLUMNS, DEFAULT
from kube_policy_scheduler.embedded.resources import Resource
from kube_policy_scheduler.embedded.storage.selection import Page


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
