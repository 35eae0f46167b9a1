"""How far one plain pod walks through the code: bounds that may fall, and rise only for a reason."""

from __future__ import annotations

import pytest

from tests.simulation.walk import walk


@pytest.mark.parametrize(
    ("new", "calls", "functions", "files"),
    [
        pytest.param(False, 383, 298, 84, id="of a template that is known"),
        pytest.param(True, 585, 400, 102, id="the first of its template"),
    ],
)
def test_a_plain_pod_walks_no_further(new: bool, calls: int, functions: int, files: int) -> None:
    found = walk(new=new)
    walked = (len(found.steps), len(found.functions), len(found.files))
    assert all(each <= bound for each, bound in zip(walked, (calls, functions, files), strict=True)), str(found)
