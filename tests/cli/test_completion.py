"""What the shell offers next: commands, options, and the names that a command knows."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from kube_policy_scheduler.cli.main import policyctl


@pytest.mark.parametrize(
    ("typed", "begun", "offered"),
    [
        ([], "expl", "explain-code"),
        (["lint"], "--fo", "--format"),
        (["lint", "--format"], "sa", "sarif"),
        (["explain-code"], "P0102", "P0102"),
        (["functions"], "clam", "clamp"),
        (["fields"], "node.read", "node.ready"),
    ],
)
def test_what_is_begun_is_completed(typed: list[str], begun: str, offered: str) -> None:
    found = ShellComplete(policyctl, {}, "policyctl", "_POLICYCTL_COMPLETE").get_completions(typed, begun)
    assert [item.value for item in found] == [offered]
