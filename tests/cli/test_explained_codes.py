"""The examples of `policyctl explain-code` about YAML files and test files: each is completed to a file, and read.

Those about policies are run in `tests/lang/test_codes.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.cli.commands.explain_code import all_codes
from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.daemon.configuration.settings import parse_settings
from kube_policy_scheduler.diagnostics import Diagnostic, Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.documents.trace import parse_pods
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.tooling.simulation.metrics_over_time import parse_table
from tests.tooling.tester.command_line import Ended, Folder

CODES = [code for code in all_codes().values() if code.id[0] != "P"]
DOCUMENTS = [code for code in CODES if code.id[0] == "D"]
TESTS = [code for code in CODES if code.id[0] == "T"]
SETTINGS = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n{}\n"
OBJECT = "apiVersion: v1\nkind: {}\nmetadata: {{name: a1}}\nspec: {}\n"


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A folder that the examples' files are in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return Folder(tmp_path, capsys)


def test_every_code_is_run_here_or_with_policies() -> None:
    assert {code.id[0] for code in CODES} == {"D", "T"}


def tried(text: str, folder: Folder) -> Ended:
    """Run an example, completed to a test file."""
    folder.write("room.policy", "filter fits(cpu, mem)\n")
    folder.write("hot.policy", 'filter fits(cpu, mem)\nscore 100 - promql("cpu_usage") ?? 50\n')
    folder.write("fixtures/pods.yaml", OBJECT.format("Pod", "{containers: [{name: main}]}"))
    folder.write("fixtures/nodes.yaml", OBJECT.format("Node", "{}"))
    return folder.suite(yaml.safe_dump(completed(text), sort_keys=False))


def completed(text: str) -> dict[str, Any]:
    """Return the test file of which an example is a part: with a policy, a node, and cases of a pod and its outcome."""
    given = yaml.safe_load(text)
    if "expect" in given:
        given = {"cases": [given]}
    if "series" in given:
        given = {"metrics": given, "policy": "room.policy"}
    if "nodes" not in given:
        given["nodes"] = [{"name": "a1", "cpu": 4, "mem": "8Gi"}]
    given.setdefault("policy", "hot.policy" if "metrics" in given else "room.policy")
    for case in given.setdefault("cases", [] if "forall" in given else [{}]):
        case.setdefault("name", "a case")
        case.setdefault("pod", {"cpu": 1})
        case.setdefault("expect", {"schedulable": True})
    for each in given.get("forall", ()):
        each.update(name="all", expect={"schedulable": True})
    return {key: value for key, value in given.items() if value}


def read(code: Code, text: str, folder: Folder) -> str:
    """Return the codes in what is said of an example of D0xxx."""
    found: tuple[Diagnostic, ...] = ()
    try:
        if code.id == "D0003":
            ended = tried(text, folder)
            return ended.out + ended.err
        if code.id < "D0020":
            parse_settings(Source("config.yaml", SETTINGS.format(text)))
        elif code.id < "D0030":
            parse_objects(Source("cluster.yaml", text))
        elif code.id == "D0032":
            parse_table(Source("metrics.csv", text), (Query("cpu_usage"),))
        else:
            parse_pods(Source("pods.csv", text))
    except DocumentError as error:
        found = tuple(error.diagnostics)
    return " ".join(f"[{diagnostic.code}]" for diagnostic in found)


@pytest.mark.parametrize("code", DOCUMENTS, ids=lambda code: f"{code.id}-{code.name}")
def test_examples_of_yaml_files(code: Code, folder: Folder) -> None:
    assert f"[{code.id}]" in read(code, code.bad, folder)
    assert not re.findall(r"\[\w0\d{3}\]", read(code, code.good, folder))


@pytest.mark.parametrize("code", TESTS, ids=lambda code: f"{code.id}-{code.name}")
def test_examples_of_test_files(code: Code, folder: Folder) -> None:
    bad, good = (tried(text, folder) for text in (code.bad, code.good))

    assert f"[{code.id}]" in bad.out + bad.err
    assert not re.findall(r"\[\w0\d{3}\]", good.out + good.err)
    assert good.code < 2, good.err
