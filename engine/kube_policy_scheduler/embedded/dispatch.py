"""A parsed request to the operation that serves it. Knows bodies and views, not sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson
import yaml

from kube_policy_scheduler.embedded import access, causes, decoding, errors, protobuf, selection, subresources, views
from kube_policy_scheduler.embedded.access import Guard, User
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.embedded.selection import Selection
from kube_policy_scheduler.embedded.views import Table, View

JSON = "application/json"
_OBJECT_SUBRESOURCES = ("", "ephemeralcontainers", "resize", "status")
"""Those that are read and written as the object itself."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request for a resource, read but not yet carried out."""

    target: Target
    query: Mapping[str, str]
    content: bytes
    content_type: str
    accept: str
    user: User

    @property
    def dry_run(self) -> bool:
        """Whether the request must change nothing."""
        return self.query.get("dryRun") == "All"


@dataclass(frozen=True, slots=True)
class Answer:
    """The response: HTTP code, body and the warnings for the user."""

    code: int
    body: bytes
    content_type: str = JSON
    warnings: tuple[str, ...] = field(default=())


def view_of(call: Call, *, now: Callable[[], datetime]) -> View:
    """Return the form of the objects that the request's Accept header names."""
    resource = call.target.resource
    for part in call.accept.split(","):
        if "as=Table" in part and "g=meta.k8s.io" in part:
            return Table(resource, include=call.query.get("includeObject", "Metadata"), now=now)
        if "as=PartialObjectMetadata" in part:
            return views.MetadataOnly()
        if part.strip().startswith((JSON, "*/*")) and "as=" not in part:
            break
    if resource.storage_key == "events" and resource.group:
        return views.NewEvents()
    return views.OtherVersion(resource) if resource.stored_as else views.Stored(resource)


def read_object(call: Call) -> Json:
    """Return the object in the request's body.

    Raises:
        ApiError: 400 when it is none, 415 when it is neither JSON nor YAML.
    """
    media = call.content_type.partition(";")[0].strip() or JSON
    if media == "application/yaml":
        try:
            read = yaml.safe_load(call.content)
        except yaml.YAMLError as error:
            raise errors.bad_request(f"error converting YAML to JSON: {error}") from error
    elif media in (JSON, "application/x-www-form-urlencoded"):
        try:
            read = orjson.loads(call.content) if call.content else {}
        except orjson.JSONDecodeError as error:
            kind = call.target.resource.kind
            raise errors.bad_request(
                f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
                f"json parse error: {error}"
            ) from error
    elif media == protobuf.CONTENT_TYPE:
        try:
            read = protobuf.decode(call.content) if call.content else {}
        except protobuf.ProtobufError as error:
            raise errors.bad_request(f"couldn't get version/kind; {error}") from error
    else:
        raise errors.unsupported_media_type(media, (JSON, "application/yaml", protobuf.CONTENT_TYPE))
    if not isinstance(read, dict):
        raise errors.bad_request("couldn't get version/kind; json parse error: the body is not an object")
    return read


class FieldReader:
    """Reads the fields of one call's object, as strictly as its `fieldValidation` requires."""

    def __init__(self, call: Call) -> None:
        self._resource = call.target.resource
        self._patched = call.target.verb == "patch"
        self._level = call.query.get("fieldValidation") or "Warn"
        if self._level not in ("Ignore", "Warn", "Strict"):
            cause = causes.unsupported("fieldValidation", self._level, ("", "Ignore", "Strict", "Warn"))
            kinds = {"create": "CreateOptions", "update": "UpdateOptions"}
            raise errors.invalid_options(kinds.get(call.target.verb, "PatchOptions"), [cause])
        self._decoder = decoding.Decoder()

    def read(self, obj: Json) -> Json:
        """Return the object in the schema's form.

        Raises:
            ApiError: 400, or 422 after a patch: a value of the wrong type, or an unknown field if that is strict.
        """
        resource = self._resource
        if obj.get("apiVersion", resource.api_version) == resource.api_version:
            obj["apiVersion"] = resource.stored_api_version
        obj.setdefault("kind", resource.kind)
        try:
            done = self._decoder.decode(obj)
        except decoding.DecodeError as error:
            raise self._refusal(str(error), obj) from error
        if self._decoder.unknown and self._level == "Strict":
            raise self._refusal("strict decoding error: " + ", ".join(self._texts()), obj)
        return done

    def warnings(self) -> tuple[str, ...]:
        """Return what to warn the caller of."""
        return tuple(self._texts()) if self._level == "Warn" else ()

    def _texts(self) -> list[str]:
        return [f'unknown field "{path}"' for path in self._decoder.unknown]

    def _refusal(self, text: str, obj: Json) -> errors.ApiError:
        if self._patched:
            cause = errors.Cause("patch", "FieldValueInvalid", f"Invalid value: {causes.quoted(obj)}: {text}")
            return errors.invalid("", [cause], group="", kind="")
        kind, version = self._resource.kind, self._resource.version
        return errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {text}')


def serve(api: Api, call: Call, guard: Guard) -> Answer:
    """Carry out any request but a watch.

    Raises:
        ApiError: the failure to answer with.
    """
    target = call.target
    if target.resource.verbs == ("create",) or target.subresource not in _OBJECT_SUBRESOURCES:
        return _serve_special(api, call, guard)
    view = view_of(call, now=api.now)
    match target.verb:
        case "get":
            return Answer(200, view.one(api.get(target).body))
        case "list":
            selected = Selection.of(target, call.query)
            page = selection.read_page(api.store, api.collection(target.resource), selected, call.query)
            return Answer(200, view.many(page))
        case "create":
            reader = FieldReader(call)
            body = api.create(target, reader.read(_stored_form(call)), dry_run=call.dry_run)
            return Answer(201, view.one(body), warnings=reader.warnings())
        case "update":
            reader = FieldReader(call)
            code, body = api.upsert(target, reader.read(_stored_form(call)), dry_run=call.dry_run)
            return Answer(code, view.one(body), warnings=reader.warnings())
        case "patch":
            return _patch(api, call, view)
        case "delete":
            options = _delete_options(call)
            return Answer(200, api.delete(target, options, dry_run=call.dry_run))
        case "deletecollection":
            selected = Selection.of(target, call.query)
            gone = api.delete_collection(target, selected, _delete_options(call), dry_run=call.dry_run)
            return Answer(200, view.many(views.page_of(gone, api.store.revision)))
        case _:
            raise errors.method_not_allowed()


def _patch(api: Api, call: Call, view: View) -> Answer:
    media = call.content_type.partition(";")[0].strip()
    content = call.content
    if isinstance(view, views.NewEvents) and media.endswith("merge-patch+json"):
        content = orjson.dumps(views.renamed_to_core(orjson.loads(content)))
    reader = FieldReader(call)
    code, body = api.patch(call.target, content, content_type=media, decode=reader.read, dry_run=call.dry_run)
    return Answer(code, view.one(body), warnings=reader.warnings())


def _stored_form(call: Call) -> Json:
    obj = read_object(call)
    resource = call.target.resource
    if resource.storage_key == "events" and obj.get("apiVersion", resource.api_version) == "events.k8s.io/v1":
        return views.to_core(obj)
    return obj


def _delete_options(call: Call) -> Mapping[str, Any]:
    options: dict[str, Any] = dict(read_object(call)) if call.content else {}
    if "gracePeriodSeconds" in call.query:
        options["gracePeriodSeconds"] = int(call.query["gracePeriodSeconds"])
    if "propagationPolicy" in call.query:
        options["propagationPolicy"] = call.query["propagationPolicy"]
    return options


def _serve_special(api: Api, call: Call, guard: Guard) -> Answer:
    target = call.target
    match target.resource.plural, target.subresource, target.verb:
        case ("pods", "binding", "create") | ("bindings", "", "create"):
            status = subresources.bind(api, target, read_object(call), dry_run=call.dry_run)
            return Answer(201, orjson.dumps(status))
        case "pods", "eviction", "create":
            return Answer(201, orjson.dumps(subresources.evict(api, target, read_object(call), dry_run=call.dry_run)))
        case "pods", "log", "get":
            return Answer(200, subresources.log(api, target), content_type="text/plain")
        case "serviceaccounts", "token", "create":
            return Answer(201, orjson.dumps(subresources.issue_token(api, target, read_object(call), guard)))
        case "namespaces", "finalize", "update":
            return Answer(200, subresources.finalize_namespace(api, target, read_object(call)))
        case _, "scale", "get":
            return Answer(200, orjson.dumps(subresources.read_scale(api, target)))
        case _, "scale", "update" | "patch":
            return Answer(200, orjson.dumps(_change_scale(api, call)))
        case _, "", "create":
            return Answer(201, orjson.dumps(access.answer(read_object(call), call.user, guard)))
        case _:
            raise errors.method_not_allowed()


def _change_scale(api: Api, call: Call) -> Json:
    if call.target.verb == "patch":
        change = subresources.patched(call.content, call.content_type.partition(";")[0].strip())
    else:
        wanted = read_object(call)

        def change(scale: Json) -> Json:
            return wanted

    return subresources.change_scale(api, call.target, change, dry_run=call.dry_run)
