"""The address of an HTTP server, as people give it. One pattern for the configuration file and for command lines."""

from __future__ import annotations

import re

PATTERN = r"^https?://([^/?#@\s]*@)?(\[[0-9A-Fa-f:.%]+\]|[^/?#@:\s\[\]]+)(:[0-9]{1,5})?([/?#]\S*)?$"
_LAST_PORT = 65_535


def is_http_url(text: str) -> bool:
    """Return whether a text is `http://HOST`, or https, with a port and a path where it has any."""
    found = re.fullmatch(PATTERN.removesuffix("$"), text)
    return found is not None and (found[3] is None or 0 < int(found[3][1:]) <= _LAST_PORT)
