"""`policyctl test` on files in a folder, as its user runs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kube_policy_scheduler.cli.main import run

SPREAD = """\
filter node.ready and fits(cpu, mem) as room else "no room"
score 100 - (promql("cpu_usage") ?? 50)
"""
SUITE = """\
policy: spread.policy
nodes:
- {name: a1, zone: a, cpu: 4, mem: 16Gi}
- {name: b1, zone: b, cpu: 4, mem: 16Gi}
- {name: c1, zone: c, cpu: 4, mem: 16Gi, ready: false}
metrics:
  cpu_usage: {a1: 90, b1: 10, c1: 0}
templates:
  small: {cpu: 500m, mem: 256Mi}
cases:
- name: hot node loses
  pod: small
  expect: {node: b1}
"""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


class Folder:
    """A folder with files, in which commands are run."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capsys = capsys

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def test(self, *arguments: str) -> Ended:
        """Run `policyctl test`."""
        self._capsys.readouterr()
        code = run(["test", *arguments])
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        return Ended(code, captured.out, captured.err)

    def suite(self, text: str, *arguments: str, policy: str = SPREAD) -> Ended:
        """Run a test file with its policy `spread.policy`."""
        self.write("spread.policy", policy)
        self.write("spread.test.yaml", text)
        return self.test("spread.test.yaml", *arguments)
