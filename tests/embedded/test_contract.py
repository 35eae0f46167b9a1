"""The embedded API server answers as a real one did: every case, request by request."""

from __future__ import annotations

import json

import pytest

from tests.embedded.cases import NAMES, play, recording_of
from tests.embedded.conftest import Server


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_the_one_a_real_api_server_gave(server: Server, name: str) -> None:
    recorded = json.loads(recording_of(name).read_text(encoding="utf-8"))
    played = list(play(server.client, name, namespace="case-" + name.replace("_", "-")))
    assert len(played) == len(recorded), "the case has changed, record it again"
    for (step, answer), wanted in zip(played, recorded, strict=True):
        assert answer == wanted, step
