"""What the shell offers next: commands, options, and the names that a command knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from kube_policy_scheduler.cli import kubectl_completion
from kube_policy_scheduler.cli.main import policyctl
from tests.cli.transcript import command


@pytest.mark.parametrize(
    ("typed", "begun", "offered"),
    [
        ([], "expl", "explain-code"),
        (["lint"], "--fo", "--format"),
        (["lint", "--format"], "sa", "sarif"),
        (["explain-code"], "P0102", "P0102"),
        (["functions"], "clam", "clamp"),
        (["fields"], "node.read", "node.ready"),
        (["eval"], "node.read", "node.ready"),
        (["eval"], "2 * node.fre", "2 * node.free."),
        (["eval"], "p.serv", "p.service_account"),
    ],
)
def test_what_is_begun_is_completed(typed: list[str], begun: str, offered: str) -> None:
    found = ShellComplete(policyctl, {}, "policyctl", "_POLICYCTL_COMPLETE").get_completions(typed, begun)
    assert [item.value for item in found] == [offered]


def test_owner_completes_the_owners_of_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "policies:\n  owners:\n"
        "  - {name: team-a, path: a, namespaces: [a]}\n"
        "  - {name: team-b, path: b, namespaces: [b]}\n"
        "  - {name: gpu, path: c, namespaces: [c]}\n"
    )
    complete = ShellComplete(policyctl, {}, "policyctl", "_POLICYCTL_COMPLETE").get_completions
    for typed in (["lint"], ["canary", "list"]):
        found = complete([*typed, "--config", str(config), "--owner"], "te")
        assert [item.value for item in found] == ["team-a", "team-b"]
    assert complete(["lint", "--owner"], "te") == []
    assert complete(["lint", "--config", str(tmp_path / "none.yaml"), "--owner"], "te") == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["expl"], ["explain-code\tExplain diagnostic codes: what is wrong,...", ":4"]),
        (["lint", "--format", "sa"], ["sarif", ":4"]),
        (["lint", "policies/"], [":0"]),
        (["man", ""], [":16"]),
        ([], None),
    ],
)
def test_kubectl_completes_the_plugin(
    typed: list[str], offered: list[str] | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kubectl_complete-policy", *typed])
    kubectl_completion.main()
    printed = capsys.readouterr().out.splitlines()
    if offered is None:
        assert [line.split("\t")[0] for line in printed[:2]] == ["canary", "capacity"]
    else:
        assert printed == offered


def test_fish_shows_descriptions_with_commas_whole() -> None:
    printed, code = command("policyctl completion fish", Path())
    assert code == 0
    assert 'string split --max 1 ","' in printed
