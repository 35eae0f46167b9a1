"""What sends requests to the API server, for code that does not care how."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from kube_policy_scheduler.adapters.kube.errors import Fenced
from kube_policy_scheduler.adapters.kube.fence import Fence

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
REQUEST_TIMEOUT_SECONDS = 30.0


class Request(msgspec.Struct, frozen=True):
    """One request."""

    verb: str
    """Of HTTP."""
    path: str
    """Absolute and escaped, with query."""
    body: bytes = b""
    content_type: str = JSON
    """Of the body."""
    resource: str = ""
    """Label for metrics. A server that has too much to do is left in peace by requests of the same verb and
    resource."""
    timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
    """For all of it, with further tries."""
    fence: Fence | None = None
    """Asked after all waiting, right before the bytes go out."""
    accept: str = JSON
    """Media type of the answer."""

    @property
    def place(self) -> str:
        """Return the verb and the path without the query, for messages."""
        return f"{self.verb} {self.path.partition('?')[0]}"

    def check_fence(self) -> None:
        """Check that it may go out now.

        Raises:
            Fenced: it may not.
        """
        if self.fence is not None and not self.fence.allows():
            raise Fenced(f"{self.place} was withheld")


class Client(ABC):
    """The daemon's `Transport`, or the `OfficialClient` of commands."""

    async def request(
        self,
        verb: str,
        path: str,
        *,
        body: bytes = b"",
        content_type: str = JSON,
        resource: str = "",
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
        fence: Fence | None = None,
        accept: str = JSON,
    ) -> bytes:
        """Send one request and return the body of a 2xx answer; see `Request` and `send`."""
        return await self.send(Request(verb, path, body, content_type, resource, timeout_seconds, fence, accept))

    @abstractmethod
    async def send(self, request: Request) -> bytes:
        """Send one request and return the body of a 2xx answer.

        Raises:
            KubeError: Unreachable or Fenced if certainly not processed, UnknownOutcome if perhaps, an ApiError if the
                server refused.
        """
