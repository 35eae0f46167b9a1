"""Eviction, scale and the other subresources that are not simply a part of the object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.embedded import errors
from engine.embedded.api import Api
from engine.embedded.requests import Target

if TYPE_CHECKING:
    from engine.embedded.dispatch import Call


def serve(api: Api, target: Target, call: Call) -> tuple[int, bytes]:
    """Carry out a request for a subresource; return the HTTP code and the body.

    Raises:
        ApiError: the failure to answer with.
    """
    raise errors.path_not_found()
