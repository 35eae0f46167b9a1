"""What servers log of requests that are none: a client's mistake is no error of ours, and must not fill the log."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError

from kube_policy_scheduler.wording import one_line

_SHOWN_CHARACTERS = 200


class ServerLogger(logging.LoggerAdapter[logging.Logger]):
    """For aiohttp's servers: logs a malformed request in one line that is usually not seen, all else as it is."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        """Log a fault with where it happened, unless it is the client's."""
        if isinstance(exc_info, HttpProcessingError):
            self._note(msg, *args, mistake=exc_info)
        else:
            super().exception(msg, *args, exc_info=exc_info, **more)

    def debug(self, msg: object, *args: object, exc_info: Any = None, **more: Any) -> None:
        """Log something for developers."""
        if isinstance(exc_info, HttpProcessingError):
            self._note(msg, *args, mistake=exc_info)
        else:
            super().debug(msg, *args, exc_info=exc_info, **more)

    def _note(self, msg: object, *args: object, mistake: HttpProcessingError) -> None:
        super().debug(f"{msg}: %s", *args, one_line(str(mistake), _SHOWN_CHARACTERS))
