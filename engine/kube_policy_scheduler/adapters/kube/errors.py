"""What can go wrong between this process and the API server. Knows no HTTP library and nothing of scheduling.

KubeError
├── CredentialsError      no usable kubeconfig, context, plugin or certificate
├── Unreachable           no connection: the request was certainly not processed
├── UnknownOutcome        the request was sent, its answer was not seen: it may have been processed
│   ├── AnswerTimeout
│   ├── ConnectionLost
│   └── MalformedAnswer
└── ApiError              the server answered, and refused
    ├── Unauthorized 401    ├── Forbidden 403    ├── NotFound 404      ├── Conflict 409
    ├── Gone 410            ├── Invalid 400 413 415 422                ├── TooManyRequests 429
    └── ServerError 5xx
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from kube_policy_scheduler.wording import one_line

DENIALS = ('admission webhook "', "Internal error occurred: failed calling webhook ")
"""How the API server's message starts if an admission webhook rejects or fails, whatever the status code."""
MESSAGE_CHARACTERS = 400  # enough for any one reason; an admission webhook may answer with pages


class KubeError(Exception):
    """Root of everything raised by this package."""


class CredentialsError(KubeError):
    """The address of the cluster or the credentials cannot be determined; the text names the file and what to do."""


class Unreachable(KubeError):
    """No connection could be made, so the request was certainly not processed."""


class Fenced(KubeError):
    """The caller's guard said no right before sending, so nothing was sent."""


class UnknownOutcome(KubeError):
    """The request was sent and its answer not seen: only a read can tell whether it was processed."""


class AnswerTimeout(UnknownOutcome):
    """The server took longer to answer than we wait."""


class ConnectionLost(UnknownOutcome):
    """The connection ended before the answer was complete."""


class MalformedAnswer(UnknownOutcome):
    """What came back is not HTTP, or not the JSON that was asked for."""


class ApiError(KubeError):
    """The API server answered with a status that is not success.

    `reason` is the machine-readable word of its `Status` ("AlreadyExists"), `message` its text, cut short.
    """

    def __init__(
        self, message: str, *, status: int, reason: str = "", retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_denial(self) -> bool:
        """Whether an admission webhook has said no, or did not answer: the request was certainly not carried out."""
        return self.message.startswith(DENIALS)

    def __str__(self) -> str:
        return f"{self.status} {self.reason or 'error'}: {self.message}"


class Unauthorized(ApiError):
    """401: the token or certificate is not accepted."""


class Forbidden(ApiError):
    """403: RBAC does not allow this."""


class NotFound(ApiError):
    """404: no such object, or no such resource."""


class Conflict(ApiError):
    """409: precondition failed, already exists, already bound."""


class Gone(ApiError):
    """410: the resource version or continue token is too old; list again."""


class Invalid(ApiError):
    """400, 413, 415 or 422: the request itself is wrong; repeating it is useless."""


class TooManyRequests(ApiError):
    """429: not processed; come back after `retry_after_seconds`."""

    @property
    def is_for_all(self) -> bool:
        """Whether the server has too much to do, rather than one object's webhook, or its namespace's limit, says no.

        Priority and Fairness answers with plain text, no matter who looks at an object with a `Status`.
        """
        return not self.reason


class ServerError(ApiError):
    """5xx: may or may not have been processed."""


_BY_STATUS: Mapping[int, type[ApiError]] = MappingProxyType(
    {
        400: Invalid,
        401: Unauthorized,
        403: Forbidden,
        404: NotFound,
        409: Conflict,
        410: Gone,
        413: Invalid,
        415: Invalid,
        422: Invalid,
        429: TooManyRequests,
    }
)


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0


def error_from_answer(status: int, body: bytes, *, retry_after_seconds: float | None = None) -> ApiError:
    """Build the error for an answer; a body that is no `Status` (a proxy's page) is quoted, cut short."""
    try:
        answer = msgspec.json.decode(body, type=_Status)
        message, reason = answer.message, answer.reason
    except (msgspec.DecodeError, UnicodeDecodeError):
        message, reason = body[:MESSAGE_CHARACTERS].decode("utf-8", "replace"), ""
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    return kind(
        one_line(message, MESSAGE_CHARACTERS) or "no message",
        status=status,
        reason=reason,
        retry_after_seconds=retry_after_seconds,
    )


def error_from_status(raw: bytes) -> ApiError:
    """Build the error for the `Status` object of an ERROR watch event; without a code it counts as 500."""
    try:
        code = msgspec.json.decode(raw, type=_Status).code
    except (msgspec.DecodeError, UnicodeDecodeError):
        code = 0
    return error_from_answer(code or 500, raw)
