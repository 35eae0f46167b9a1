"""The program `kubectl_complete-policy`: kubectl asks it what could come next after `kubectl policy …`."""

from __future__ import annotations

import sys

from click.shell_completion import ShellComplete

from kube_policy_scheduler.cli.main import PROGRAM, policyctl

_ANY_FILE, _NO_FILE, _FOLDER = 0, 4, 16
"""Directives of Cobra, which kubectl's completion scripts understand: what else the shell may offer."""


def main() -> None:
    """Print what completes the last argument, each with its help, and a directive, as Cobra does."""
    *typed, begun = sys.argv[1:] or [""]
    directive = _NO_FILE
    for item in ShellComplete(policyctl, {}, PROGRAM, "").get_completions(typed, begun):
        if item.type == "plain":
            print(f"{item.value}\t{item.help}" if item.help else item.value)
        else:
            directive = _FOLDER if item.type == "dir" else _ANY_FILE
    print(f":{directive}")
