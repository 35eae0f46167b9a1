"""API errors as Status objects. Knows the texts clients see, not their senders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason in `Status.details.causes`."""

    field: str
    reason: str
    message: str

    def as_json(self) -> Json:
        """Return the cause as the API writes it."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


class ApiError(Exception):
    """A request that is answered with a failure `Status`."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = None if details is None else dict(details)
        self.headers = dict(headers or {})

    def status(self) -> Json:
        """Return the `Status` object of the answer."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def success(message: str | None = None, *, details: Mapping[str, Any] | None = None, code: int = 200) -> Json:
    """Return a `Status` of success."""
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if message is not None:
        status["message"] = message
    if details:
        status["details"] = dict(details)
    if code != 200 or details is None:
        status["code"] = code
    return status


def qualified(plural: str, group: str) -> str:
    """Return `pods` or `deployments.apps`: how messages name a resource."""
    return f"{plural}.{group}" if group else plural


def _details(name: str, group: str, kind: str, **more: Any) -> Json:
    details: Json = {"name": name} if name else {}
    if group:
        details["group"] = group
    return {**details, "kind": kind, **more}


def bad_request(message: str) -> ApiError:
    """400: the request itself makes no sense."""
    return ApiError(400, "BadRequest", message)


def forbidden(
    message: str, *, name: str = "", group: str = "", plural: str = "", causes: Iterable[Cause] = ()
) -> ApiError:
    """403: the identity has no permission for this, or admission refused."""
    full = (
        f'{qualified(plural, group)} "{name}" is forbidden: {message}'
        if name
        else (f"{qualified(plural, group)} is forbidden: {message}" if plural else f"forbidden: {message}")
    )
    details = _details(name, group, plural) if plural else {}
    listed = [cause.as_json() for cause in causes]
    if listed:
        details["causes"] = listed
    return ApiError(403, "Forbidden", full, details=details)


def path_not_found() -> ApiError:
    """404: unknown path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def not_found(name: str, *, group: str, plural: str) -> ApiError:
    """404: the object does not exist."""
    return ApiError(
        404,
        "NotFound",
        f'{qualified(plural, group)} "{name}" not found',
        details=_details(name, group, plural),
    )


def method_not_allowed() -> ApiError:
    """405: the resource does not support the verb."""
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def already_exists(name: str, *, group: str, plural: str) -> ApiError:
    """409: the name is taken."""
    return ApiError(
        409,
        "AlreadyExists",
        f'{qualified(plural, group)} "{name}" already exists',
        details=_details(name, group, plural),
    )


def conflict(name: str, message: str, *, group: str, plural: str) -> ApiError:
    """409: the object is not in the state the request assumes."""
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {message}',
        details=_details(name, group, plural),
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def modified(name: str, *, group: str, plural: str) -> ApiError:
    """409: the caller's resourceVersion is not the latest."""
    return conflict(name, MODIFIED, group=group, plural=plural)


def gone(message: str) -> ApiError:
    """410: the requested history is no longer kept."""
    return ApiError(410, "Expired", message, details={})


def too_old(asked: int, oldest: int) -> ApiError:
    """410 of a watch: its start is before the kept history."""
    return gone(f"too old resource version: {asked} ({oldest})")


def unsupported_media_type(content_type: str, accepted: Iterable[str]) -> ApiError:
    """415: the body is of a type that is not read."""
    return ApiError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted),
    )


def invalid(name: str, causes: Iterable[Cause], *, group: str, kind: str) -> ApiError:
    """422: the object breaks the rules of its kind."""
    listed = list(causes)
    texts = [f"{cause.field}: {cause.message}" for cause in listed]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return ApiError(
        422,
        "Invalid",
        f'{qualified(kind, group)} "{name}" is invalid: {joined}',
        details=_details(name, group, kind, causes=[cause.as_json() for cause in listed]),
    )


def invalid_options(kind: str, causes: Iterable[Cause]) -> ApiError:
    """422: the options in the query break the rules."""
    return invalid("", causes, group="meta.k8s.io", kind=kind)


def too_many_requests(message: str, *, retry_after_seconds: int, details: Mapping[str, Any] | None = None) -> ApiError:
    """429: come back later."""
    return ApiError(
        429,
        "TooManyRequests",
        message,
        details={**(details or {}), "retryAfterSeconds": retry_after_seconds},
        headers={"Retry-After": str(retry_after_seconds)},
    )


def internal(message: str) -> ApiError:
    """500: our fault."""
    text = f"Internal error occurred: {message}"
    return ApiError(500, "InternalError", text, details={"causes": [{"message": message}]})


def version_in_future(asked: int, current: int) -> ApiError:
    """504: the requested resource version does not exist yet."""
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        headers={"Retry-After": "1"},
    )
