"""Whether gRPC is installed: it comes with the extra `fleet`."""

from __future__ import annotations

from importlib.util import find_spec

from kube_policy_scheduler.adapters.http.port import ServerError
from kube_policy_scheduler.installation import command_for


def require_grpc() -> None:
    """Do nothing if gRPC is installed.

    Raises:
        ServerError: it is not; the text says what to install.
    """
    if find_spec("grpc") is None or find_spec("google.protobuf") is None:
        raise ServerError(f"gRPC is not installed: {command_for('fleet')}")
