"""Files on a command line: the errors for files of another kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_policy_scheduler.cli.main import COULD_NOT_RUN, run


def test_of_very_many_errors_the_first_are_shown_and_the_rest_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("a: 1\n" * 2_001)
    assert run(["why", "web", "--cluster", str(cluster)]) == COULD_NOT_RUN
    told = capsys.readouterr().err
    assert told.count("appears here twice") == 500
    assert told.endswith("and 1,500 more\n")
