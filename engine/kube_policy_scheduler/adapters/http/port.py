"""The port of an HTTP server, taken before it is served: imports nothing that speaks HTTP, so that a start can wait."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Self

MOST_WAITING = 128
"""Connections that the system accepts before we do."""


class ServerError(Exception):
    """The server cannot listen on its address."""


class HttpPort:
    """A context manager: the port is taken when it is entered, and given back when it is left."""

    def __init__(self, host: str, number: int) -> None:
        """Take nothing yet.

        Args:
            host: address to listen at; `127.0.0.1` for this machine only, `0.0.0.0` in a pod.
            number: 0 takes a free one, see `address`.
        """
        self.host = host
        self._number = number
        self._server: asyncio.Server | None = None
        self._protocol: Callable[[], asyncio.Protocol] = asyncio.Protocol

    async def __aenter__(self) -> Self:
        """Take the port; connections are refused until `serve`. Does nothing if it is taken.

        Raises:
            ServerError: the address is taken or not ours.
        """
        if self._server is None:
            loop = asyncio.get_running_loop()
            try:
                self._server = await loop.create_server(
                    lambda: self._protocol(), self.host, self._number, backlog=MOST_WAITING, start_serving=False
                )
            except OSError as error:
                raise self._error(error) from error
        return self

    async def serve(self, protocol: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections from now on.

        protocol: returns what a new connection speaks to.

        Raises:
            ServerError: somebody else began to listen at the address.
        """
        assert self._server is not None, "not taken"
        self._protocol = protocol
        try:
            await self._server.start_serving()
        except OSError as error:
            raise self._error(error) from error

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def address(self) -> str:
        """`HOST:PORT`, with the real port."""
        assert self._server is not None, "not taken"
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _error(self, error: OSError) -> ServerError:
        # the system's own words; asyncio puts a sentence around them
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        return ServerError(f"cannot listen at {self.host}:{self._number}: {reason.lower()}")
