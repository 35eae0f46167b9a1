"""A start imports only what scheduling needs; optional parts are imported on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = (
    "import sys, kube_policy_scheduler.daemon.main as main; __import__(main.IMPORTED_MEANWHILE); print(*sys.modules)"
)
NOT_AT_THE_START = {
    "aiohttp": "the port, which is served after the first decisions",
    "kubernetes": "exec plugins and auth providers of a kubeconfig",
    "requests": "Prometheus, where one is configured",
    "prometheus_api_client": "Prometheus, where one is configured",
    "jsonschema": "a configuration file",
    "jinja2": "the status page, when it is asked for",
    "lark": "policies whose trees the checker's process does not send",
    "matplotlib": "reports",
    "opentelemetry": "tracing, where it is configured",
    "cryptography": "signatures and certificates of our own",
    "kube_policy_scheduler.daemon.modes.extender": "the mode extender",
    "kube_policy_scheduler.daemon.modes.shadow": "the mode shadow",
    "numba": "compiled kernels, once the first pods are bound",
    "zlib_ng": "the first compressed answer",
    "numpy.ma": "the first `np.unique`, once the first pods are bound",
    "importlib.metadata": "the version, with the first scrape",
    "watchdog": "changes of the policies' directory, a second after it was read",
    "zoneinfo": "policies that name a time zone",
    "rich": "commands for people",
    "kube_policy_scheduler.daemon.commands.config": "its command",
    "kube_policy_scheduler.daemon.commands.webhook": "its command",
    "kube_policy_scheduler.cli": "policyctl",
    "kube_policy_scheduler.embedded": "a cluster of its own",
}
"""Modules, and what they are for."""


@pytest.fixture(scope="module")
def imported() -> set[str]:
    run = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True, timeout=60)
    return set(run.stdout.split())


def test_the_scheduler_itself_is_imported(imported: set[str]) -> None:
    assert {
        "kube_policy_scheduler.daemon.scheduling.schedule_one",
        "kube_policy_scheduler.lang.load",
        "kube_policy_scheduler.adapters.kube.reflector",
    } <= imported


@pytest.mark.parametrize("module", NOT_AT_THE_START)
def test_a_start_does_without(module: str, imported: set[str]) -> None:
    assert module not in imported, f"only for {NOT_AT_THE_START[module]}: import it where that is done"
