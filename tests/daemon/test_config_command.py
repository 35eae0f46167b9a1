"""`policy-scheduler config`: the output is a valid configuration file with the printed values."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from click.testing import CliRunner, Result
from msgspec.inspect import is_struct_type
from msgspec.structs import fields, replace

from kube_policy_scheduler.builtins.environment import install_extensions
from kube_policy_scheduler.daemon.configuration import settings as module
from kube_policy_scheduler.daemon.configuration.settings import (
    HttpSettings,
    PolicySettings,
    PrometheusSettings,
    Settings,
    TlsSettings,
    parse_settings,
)
from kube_policy_scheduler.daemon.configuration.settings_text import (
    defaults_text,
    field_docs,
    settings_text,
)
from kube_policy_scheduler.daemon.main import main
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.report import camel_case
from kube_policy_scheduler.times import duration_text, parse_duration

HEAD = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def parsed(text: str) -> Settings:
    return parse_settings(Source("config.yaml", text))


def sections() -> list[type]:
    found = [kind for kind in vars(module).values() if is_struct_type(kind)]
    return [kind for kind in found if kind.__module__ == module.__name__]


@pytest.fixture(scope="module")
def defaults() -> str:
    return defaults_text()


def test_the_defaults_load_to_the_defaults() -> None:
    done = run("config", "--print-defaults")
    assert done.exit_code == 0
    assert parsed(done.output) == Settings()


def test_a_section_that_is_not_set_can_be_uncommented(defaults: str) -> None:
    lines = defaults.splitlines()
    start = lines.index("# prometheus:")
    end = lines.index("", start)
    lines[start:end] = [line.removeprefix("# ") for line in lines[start:end]]
    lines.remove("prometheus: null")
    assert parsed("\n".join(lines)).prometheus == PrometheusSettings("http://prometheus.monitoring:9090")


@pytest.mark.parametrize("kind", sections(), ids=lambda kind: str(kind.__name__))
def test_every_setting_has_a_description(kind: type, defaults: str) -> None:
    text = " ".join(line.strip().lstrip("# ") for line in defaults.splitlines())
    docs = field_docs(kind)
    for field in fields(kind):
        assert f"{camel_case(field.name)}:" in text
        hint = get_type_hints(kind)[field.name]
        if not any(is_struct_type(each) for each in (hint, *get_args(hint))):
            assert docs[field.name] in text


def test_effective_settings_are_a_file_that_loads_to_them() -> None:
    settings = replace(
        Settings(),
        scheduler_names=("a", "true", "x.y"),
        policies=PolicySettings(Path("/tmp/a b"), "ns/name"),
        prometheus=PrometheusSettings("https://p/x?y=1", timeout=0.25, prime_timeout=90.0, node_label="no"),
        http=HttpSettings(tls=TlsSettings(), authentication="kubernetes"),
    )
    assert parsed(settings_text(settings)) == settings


@pytest.mark.parametrize("seconds", [0.0, 0.0005, 0.25, 1.0, 1.5, 90.0, 300.0, 3600.0, 86400.0, 86401.0])
def test_durations_keep_their_length(seconds: float) -> None:
    assert parse_duration(duration_text(seconds)) == pytest.approx(seconds)


def test_a_file_is_checked_and_what_is_in_force_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + "prometheus: {url: 'http://me:secret@prometheus:9090'}\npolicies: {path: mine}\n")
    done = run("--http-address=0.0.0.0:10259", "--scheduler-name=x", "config", str(file))
    assert done.exit_code == 0
    assert "secret" not in done.output
    assert "http://prometheus:9090" in done.output
    shown = parsed(done.output)
    assert shown.policies.path == tmp_path / "mine"
    assert shown.scheduler_names == ("x",)
    assert shown.http.authentication == "kubernetes"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "log: {level: loud}\n", "config.yaml:3:14"),
        (HEAD + "htp: {}\n", "http"),
        ("kind: Pod\n", "PolicySchedulerConfiguration"),
        (None, "does not exist"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "config.yaml"
    if text is not None:
        file.write_text(text)
    done = run("config", str(file))
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize(
    "arguments", [("config",), ("config", "x", "--print-defaults"), ("--config=x", "config", "x"), ("confg",)]
)
def test_what_makes_no_sense_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert "Usage:" in done.output


@pytest.fixture
def no_extensions() -> Iterator[None]:
    """Ends with the process that this one has been: without extensions."""
    yield
    install_extensions((), stopwatch=lambda: 0.0)


@pytest.mark.usefixtures("no_extensions")
def test_an_extension_that_cannot_be_used_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"{HEAD}policies: {{extensions: [nowhere]}}\n")
    done = run("config", str(file))
    assert done.exit_code == 2
    assert done.output.startswith(f"{file}: extension nowhere: no installed package has this entry point")

    file.write_text(f"{HEAD}policies: {{extensions: [onnx]}}\n")
    assert run("config", str(file)).exit_code == 0
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = run("config", str(file))
    assert done.exit_code == 2
    assert done.output.startswith(f"{file}: `model` needs onnxruntime; run ")
