"""Who is let in by a client certificate. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Clients(msgspec.Struct, frozen=True):
    """Who is let in by a certificate that the server has checked."""

    names: frozenset[str] = frozenset()
    """Common names; empty: anyone who has a certificate of the authority."""

    def admit(self, certificate: Mapping[str, Any] | None) -> str:
        """Return why a client is not let in, "" where it is; the certificate as `ssl` gives it."""
        if not certificate:
            return "a client certificate is required"
        subject = certificate.get("subject", ())
        name = next((value for part in subject for key, value in part if key == "commonName"), "")
        return (
            ""
            if not self.names or name in self.names
            else f"{name or 'a client without a name'} has no permission for this"
        )
