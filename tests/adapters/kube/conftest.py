"""What several tests of the API server's client need."""

from __future__ import annotations

import pytest

from tests.adapters.kube.scripted_server import ScriptedServer


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def both_protocols(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test over both protocols."""
    monkeypatch.setattr(ScriptedServer, "speaks_http2", request.param == "HTTP/2")
