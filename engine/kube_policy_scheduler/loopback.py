"""Which addresses only this machine can reach."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address or name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_meant(host: str, listening_at: str) -> bool:
    """Return whether a request may be meant for a server, by the host name that it asks.

    Where only this machine reaches a server, a page of others may have its own name point to 127.0.0.1 later ("DNS
    rebinding"): its requests carry that name.

    Args:
        host: of the request, without the port.
        listening_at: where the server listens.
    """
    name = host.strip("[]").rstrip(".").lower()
    return not is_loopback(listening_at) or is_loopback(name) or name.endswith(".localhost")
