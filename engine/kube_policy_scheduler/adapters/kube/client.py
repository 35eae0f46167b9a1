"""What sends requests to the API server, for code that does not care how."""

from __future__ import annotations

from typing import Protocol

from kube_policy_scheduler.adapters.kube.fence import Fence

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
REQUEST_TIMEOUT_SECONDS = 30.0


class Client(Protocol):
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
    ) -> bytes:
        """Send one request and return the body of a 2xx answer. Raises KubeError; see `Transport.request`."""
