"""How policyctl ends: exit codes, Ctrl-C, a reader that goes away, a bug of ours."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kube_policy_scheduler.cli import main

POLICYCTL = [sys.executable, "-m", "kube_policy_scheduler.cli"]


@pytest.mark.long
def test_help_names_every_command_and_loads_nothing_that_it_does_not_need() -> None:
    script = (
        "import sys; from kube_policy_scheduler.cli.main import run; code = run(['--help']);"
        f"print(code, [name for name in {(*HEAVY, 'numpy', 'lark')!r} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "0 []"
    context = click.Context(main.policyctl)
    for name in main.policyctl.list_commands(context):
        assert f"  {name} " in shown


HEAVY = ("aiohttp", "jsonschema", "kubernetes", "prometheus_api_client", "prometheus_client", "requests", "rich")
"""Each of them takes longer to import than a policy takes to check."""


@pytest.mark.long
def test_lint_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text("score -1 if label node=hello\n")
    script = (
        f"import sys; from kube_policy_scheduler.cli.main import run; code = run(['lint', {str(tmp_path)!r}]);"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "0 []"


@pytest.mark.parametrize("name", main.policyctl.list_commands(click.Context(main.policyctl)))
def test_every_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([name, "--help"]) == main.OK
    shown = capsys.readouterr().out
    assert "Example" in shown
    assert f"policyctl {name}" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_completes_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["completion", shell]) == main.OK
    assert "_POLICYCTL_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("raised", "code"),
    [(KeyboardInterrupt(), 130), (click.UsageError("no"), 2), (RuntimeError("ours"), 2)],
    ids=["interrupt", "usage", "bug"],
)
def test_every_end_has_its_exit_code(
    raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(context: click.Context) -> None:
        raise raised

    monkeypatch.setattr(main.policyctl.get_command(click.Context(main.policyctl), "completion"), "invoke", fail)
    assert main.run(["completion", "bash"]) == code
    shown = capsys.readouterr().err
    assert ("Traceback" in shown) is isinstance(raised, RuntimeError)


@pytest.mark.long
def test_a_reader_that_goes_away_gets_no_complaint() -> None:
    script = "; ".join(
        [
            "import click, sys",
            "from kube_policy_scheduler.cli import main",
            "main.policyctl.get_command = lambda c, n: click.Command(n, callback=lambda: print('x' * 200_000) or 0)",
            "sys.exit(main.run(['completion']))",
        ]
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        complaint = process.stderr.read()
    assert complaint == b""
    assert process.returncode == 128 + signal.SIGPIPE
