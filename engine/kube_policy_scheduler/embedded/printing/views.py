"""The forms in which objects leave the server: as stored, as another API version, as metadata only, as tables."""

from __future__ import annotations

from typing import Protocol

import orjson

from kube_policy_scheduler.embedded.printing import event_versions
from kube_policy_scheduler.embedded.resources import Resource
from kube_policy_scheduler.embedded.storage import selection
from kube_policy_scheduler.embedded.storage.selection import Page
from kube_policy_scheduler.embedded.storage.store import Entry


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


class NewEvents:
    """Events, stored as core v1, as events.k8s.io/v1."""

    def one(self, body: bytes) -> bytes:
        """Return the event in its newer form."""
        return orjson.dumps(event_versions.to_new(orjson.loads(body)))

    def many(self, page: Page) -> bytes:
        """Return an events.k8s.io EventList."""
        items = [event_versions.to_new(entry.decode()) for entry in page.entries]
        for item in items:
            del item["apiVersion"], item["kind"]
        head = {"kind": "EventList", "apiVersion": "events.k8s.io/v1", "metadata": page.metadata()}
        return orjson.dumps({**head, "items": items})

    def watched(self, body: bytes) -> bytes:
        """Return the event in its newer form."""
        return self.one(body)


class MetadataOnly:
    """`PartialObjectMetadata`, as clients ask for that only need names and labels."""

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
