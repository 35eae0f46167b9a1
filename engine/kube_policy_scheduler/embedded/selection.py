"""Lists and what a watch shows: the part of a collection that a request selects, as bytes. Reads only."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import orjson

from kube_policy_scheduler.embedded import causes, errors, requests, selectors
from kube_policy_scheduler.embedded.resources import Resource
from kube_policy_scheduler.embedded.store import (
    ADDED,
    DELETED,
    MODIFIED,
    Change,
    Collection,
    Compacted,
    Entry,
    Key,
    Store,
)

CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
    "the results. Continuing with the provided token results in an inconsistent list - objects that were "
    "created, modified, or deleted between the time the first chunk was returned and now may show up in the "
    "list."
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a collection a request is about."""

    namespace: str | None
    labels: selectors.LabelSelector
    fields: Callable[[Sequence[str]], bool] | None

    @classmethod
    def of(cls, target: requests.Target, query: Mapping[str, str]) -> Selection:
        """Read the selectors of a request.

        Raises:
            ApiError: 400 for selectors that cannot be read, or fields that cannot be selected by.
        """
        try:
            labels = selectors.parse_labels(query.get("labelSelector", ""))
            tests = selectors.parse_fields(query.get("fieldSelector", ""))
            if target.name:
                tests = (*tests, selectors.FieldTest("metadata.name", target.name, True))
            fields = selectors.compile_fields(tests, target.resource.positions)
        except selectors.SelectorError as error:
            raise errors.bad_request(str(error)) from error
        return cls(target.namespace, labels, fields)

    def matches(self, entry: Entry) -> bool:
        """Whether the object is selected."""
        return (
            (self.namespace is None or entry.key[0] == self.namespace)
            and (self.fields is None or self.fields(entry.row))
            and (not self.labels or selectors.matches_labels(self.labels, entry.labels))
        )

    def seen(self, change: Change) -> tuple[str, Entry] | None:
        """Return the type of event and the state a watcher of this selection is shown; None for nothing.

        An object that leaves the selection is shown as deleted, one that enters it as added.
        """
        entry, previous = change.entry, change.previous
        if change.type == DELETED:
            return (DELETED, entry) if previous is not None and self.matches(previous) else None
        now = self.matches(entry)
        before = previous is not None and self.matches(previous)
        if now:
            return (MODIFIED if before else ADDED, entry)
        if before and previous is not None:
            return (DELETED, previous)
        return None


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list request."""

    entries: list[Entry]
    resource_version: int
    continue_token: str
    remaining: int | None

    def metadata(self) -> dict[str, object]:
        """Return the list's `metadata`."""
        meta: dict[str, object] = {"resourceVersion": str(self.resource_version)}
        if self.continue_token:
            meta["continue"] = self.continue_token
            if self.remaining is not None:
                meta["remainingItemCount"] = self.remaining
        return meta


def read_page(store: Store, collection: Collection, selection: Selection, query: Mapping[str, str]) -> Page:
    """Answer a list request.

    Raises:
        ApiError: 400, 410 or 504, as the API server does for resource versions and continue tokens.
    """
    limit = requests.integer(query, "limit", 0)
    given = query.get("resourceVersion", "")
    match_rule = query.get("resourceVersionMatch", "")
    token = query.get("continue", "")
    after: Key | None = None
    revision = store.revision
    if token:
        if given not in ("", "0"):
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        revision, after = _decode_token(token)
    elif given:
        asked = requests.resource_version(given)
        if asked > revision:
            raise errors.version_in_future(asked, revision)
        if match_rule == "Exact" or (limit and asked and match_rule != "NotOlderThan"):
            revision = asked
    elif match_rule:
        text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise errors.invalid_options("ListOptions", [causes.forbidden("resourceVersionMatch", text)])
    try:
        entries: Iterator[Entry] = collection.scan_at(revision, selection.namespace, after=after)
        selected = filter(selection.matches, entries)
        if not limit:
            return Page(list(selected), revision, "", None)
        taken = list(islice(selected, limit + 1))
        if len(taken) <= limit:
            return Page(taken, revision, "", None)
        remaining = None
        if not selection.labels and selection.fields is None:
            remaining = 1 + sum(1 for _ in selected)
    except Compacted as error:
        if token:
            raise errors.gone(CONTINUE_EXPIRED) from error
        raise errors.gone("The resourceVersion for the provided list is too old.") from error
    taken.pop()
    return Page(taken, revision, _encode_token(revision, taken[-1].key), remaining)


def _encode_token(revision: int, key: Key) -> str:
    return base64.urlsafe_b64encode(orjson.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": key})).decode()


def _decode_token(token: str) -> tuple[int, Key]:
    try:
        fields = orjson.loads(base64.urlsafe_b64decode(token))
        namespace, name = fields["start"]
        return int(fields["rv"]), (str(namespace), str(name))
    except (binascii.Error, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise errors.bad_request("invalid continue token: continue key is not valid") from error


def encode_list(resource: Resource, page: Page) -> bytes:
    """Return a page as the kind's List; items are the stored bytes less their type, joined."""
    head = orjson.dumps(
        {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": page.metadata()}
    )
    skip = len(b'{"apiVersion":"%s","kind":"%s",' % (resource.stored_api_version.encode(), resource.kind.encode()))
    items = b",{".join([entry.body[skip:] for entry in page.entries])
    return b"".join((head[:-1], b',"items":[{' if items else b',"items":[', items, b"]}"))
