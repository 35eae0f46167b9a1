"""Create, read, update and delete, as an API server does them. Synchronous: no HTTP, no waiting, no identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import orjson

from kube_policy_scheduler.embedded import admission, causes, errors, patch, validation
from kube_policy_scheduler.embedded.deletion import Deletion
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.requests import Target, resource_version
from kube_policy_scheduler.embedded.resources import DEFAULT_VERSION, Resource, catalog
from kube_policy_scheduler.embedded.selection import Selection
from kube_policy_scheduler.embedded.store import Collection, Entry, Store
from kube_policy_scheduler.kubernetes_rules import KubernetesVersion

_CREATE_ON_UPDATE = frozenset({"Lease", "Endpoints", "Event"})


class Api:
    """The objects of one cluster and the rules for changing them."""

    def __init__(self, *, history_limit: int = 20_000, kubernetes: KubernetesVersion = DEFAULT_VERSION) -> None:
        self.catalog = catalog(kubernetes)
        """What is served."""
        self.store = Store(history_limit=history_limit)
        self._deletion = Deletion(self.store, self.now)
        for resource in self.catalog.resources:
            if resource.storage_key not in self.store.collections():
                self.store.define(resource.storage_key, self.catalog.by_storage[resource.storage_key].row)

    @staticmethod
    def now() -> datetime:
        """Return the time."""
        return datetime.now(UTC)

    def collection(self, resource: Resource) -> Collection:
        """Return the collection that holds a resource's objects."""
        return self.store.collection(resource.storage_key)

    def get(self, target: Target) -> Entry:
        """Return the object a request names.

        Raises:
            ApiError: 404.
        """
        resource = target.resource
        entry = self.collection(resource).get((target.namespace or "", target.name))
        if entry is None:
            raise errors.not_found(target.name, group=resource.group, plural=resource.plural)
        return entry

    def create(self, target: Target, obj: Json, *, dry_run: bool = False) -> bytes:
        """Store a new object and return it as JSON.

        Raises:
            ApiError: 400, 403, 404, 409 or 422.
        """
        resource = target.resource
        meta = self._metadata(obj, target)
        if meta.get("resourceVersion"):
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        self._require_namespace(target, meta)
        admission.stamp_new(obj, resource, namespace=target.namespace, now=self.now(), uid=str(uuid4()))
        done = admission.prepare_new(obj, resource, self.store, now=self.now())
        self._refuse_invalid(resource, done, validation.new_object(resource, done))
        name = done["metadata"]["name"]
        if self.collection(resource).get((target.namespace or "", name)) is not None:
            raise errors.already_exists(name, group=resource.group, plural=resource.plural)
        if dry_run:
            return orjson.dumps(done)
        return self.collection(resource).put(done).body

    def update(self, target: Target, obj: Json, *, dry_run: bool = False) -> bytes:
        """Replace an object, or its status, and return the result as JSON.

        Raises:
            ApiError: 400, 404, 409 or 422.
        """
        return self._update(target, obj, dry_run=dry_run)[0]

    def upsert(self, target: Target, obj: Json, *, dry_run: bool = False) -> tuple[int, bytes]:
        """Replace an object, or create it where the kind allows that; return the HTTP code and the object.

        Raises:
            ApiError: 400, 404, 409 or 422.
        """
        key = (target.namespace or "", target.name)
        missing = self.collection(target.resource).get(key) is None
        if missing and target.resource.kind in _CREATE_ON_UPDATE and not target.subresource:
            meta = self._metadata(obj, target)
            if not meta.get("resourceVersion"):
                return 201, self.create(target, obj, dry_run=dry_run)
        return 200, self.update(target, obj, dry_run=dry_run)

    def _update(self, target: Target, obj: Json, *, dry_run: bool) -> tuple[bytes, bool]:
        resource = target.resource
        meta = self._metadata(obj, target)
        if meta.get("name") != target.name:
            if meta.get("name"):
                raise errors.bad_request(
                    f"the name of the object ({meta['name']}) does not match the name on the URL ({target.name})"
                )
            meta["name"] = target.name
        entry = self.get(target)
        old = entry.decode()
        if meta.get("uid") and meta["uid"] != entry.uid:
            raise errors.conflict(
                target.name,
                "StorageError: invalid object, Code: 4, Key: "
                f"/registry/{resource.storage_key}/{target.namespace or ''}/{target.name}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: UID in precondition: {meta['uid']}, "
                f"UID in object meta: {entry.uid}",
                group=resource.group,
                plural=resource.plural,
            )
        version = str(meta.get("resourceVersion") or "")
        if version in ("", "0"):
            if validation.must_name_version(resource):
                cause = causes.invalid("metadata.resourceVersion", 0, "must be specified for an update")
                raise errors.invalid(target.name, [cause], group=resource.group, kind=resource.plural)
        elif resource_version(version) != entry.resource_version:
            raise errors.modified(target.name, group=resource.group, plural=resource.plural)
        if target.namespace:
            meta["namespace"] = target.namespace
        done = admission.merge_update(obj, old, resource, subresource=target.subresource)
        done["metadata"]["resourceVersion"] = str(entry.resource_version)
        if done == old:
            return entry.body, False
        self._refuse_invalid(resource, done, validation.changed_object(resource, done, old, target.subresource))
        if dry_run:
            return orjson.dumps(done), True
        stored = self.collection(resource).put(done)
        self._deletion.finish(resource, stored, done)
        return stored.body, True

    def patch(
        self,
        target: Target,
        content: bytes,
        *,
        content_type: str,
        decode: Callable[[Json], Json] = dict,
        dry_run: bool = False,
    ) -> tuple[int, bytes]:
        """Change an object, or its status, by a patch; return the HTTP code and the result.

        `decode` reads the patched object as it would one in a request.

        Raises:
            ApiError: 400, 404, 409, 415 or 422.
        """
        if content_type == patch.APPLY:
            return self._apply(target, content, decode=decode, dry_run=dry_run)
        entry = self.get(target)
        resource = target.resource
        done = patch.apply(
            entry.decode(), content, content_type=content_type, api_version=resource.api_version, kind=resource.kind
        )
        if not isinstance(done.get("metadata"), dict):
            raise errors.bad_request("the patched object has no metadata")
        return 200, self.update(target, decode(done), dry_run=dry_run)

    def _apply(
        self, target: Target, content: bytes, *, decode: Callable[[Json], Json], dry_run: bool
    ) -> tuple[int, bytes]:
        wanted = patch.read_apply(content)
        entry = self.collection(target.resource).get((target.namespace or "", target.name))
        if entry is None:
            wanted.setdefault("metadata", {}).setdefault("name", target.name)
            return 201, self.create(target, decode(wanted), dry_run=dry_run)
        resource = target.resource
        done = patch.server_side_apply(entry.decode(), wanted, api_version=resource.api_version, kind=resource.kind)
        return 200, self.update(target, decode(done), dry_run=dry_run)

    def delete(self, target: Target, options: Mapping[str, Any], *, dry_run: bool = False) -> bytes:
        """Delete an object, or begin to; return the object or a Status as JSON.

        Raises:
            ApiError: 404 or 409.
        """
        dry = dry_run or "All" in (options.get("dryRun") or ())
        return self._deletion.delete(target, self.get(target), options, dry_run=dry)

    def delete_collection(
        self, target: Target, selection: Selection, options: Mapping[str, Any], *, dry_run: bool = False
    ) -> list[Entry]:
        """Delete all selected objects and return the states they had."""
        chosen = [
            entry for entry in self.collection(target.resource).scan(target.namespace) if selection.matches(entry)
        ]
        for entry in chosen:
            namespace, name = entry.key
            one = Target("delete", target.resource, namespace or None, name, "")
            self.delete(one, options, dry_run=dry_run)
        return chosen

    def _metadata(self, obj: Json, target: Target) -> Json:
        """Return the object's metadata after checking that it belongs where the request puts it."""
        resource = target.resource
        expected = resource.stored_api_version
        kind, version = obj.get("kind") or resource.kind, obj.get("apiVersion") or expected
        if (version, kind) != (expected, resource.kind):
            known = (version, kind) in self.catalog.by_kind
            problem = (
                f"converting ({version.rpartition('/')[2]}.{kind}) to ({resource.group or 'core'}.{resource.kind}): "
                "unknown conversion"
                if known
                else f'no kind "{kind}" is registered for version "{version}" in scheme '
                '"pkg/api/legacyscheme/scheme.go:30"'
            )
            short = version.rpartition("/")[2]
            text = f'{kind} in version "{short}" cannot be handled as a {resource.kind}: {problem}'
            raise errors.bad_request(text)
        obj["apiVersion"], obj["kind"] = version, kind
        meta = obj.get("metadata")
        if not isinstance(meta, dict):
            meta = obj["metadata"] = {}
        given = meta.get("namespace")
        if given and target.namespace and given != target.namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        return meta

    def _require_namespace(self, target: Target, meta: Json) -> None:
        if target.namespace is None:
            return
        entry = self.store.collection("namespaces").get(("", target.namespace))
        if entry is None:
            raise errors.not_found(target.namespace, group="", plural="namespaces")
        if b'"phase":"Terminating"' in entry.body:
            raise errors.forbidden(
                f"unable to create new content in namespace {target.namespace} because it is being terminated",
                name=meta.get("name") or meta.get("generateName", ""),
                group=target.resource.group,
                plural=target.resource.plural,
                causes=[
                    errors.Cause(
                        "metadata.namespace",
                        "NamespaceTerminating",
                        f"namespace {target.namespace} is being terminated",
                    )
                ],
            )

    def _refuse_invalid(self, resource: Resource, obj: Json, causes: list[errors.Cause]) -> None:
        if causes:
            name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
            raise errors.invalid(name, causes, group=resource.group, kind=resource.kind)
