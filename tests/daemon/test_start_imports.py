"""A start imports only what scheduling needs; optional parts are imported on first use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kube_policy_scheduler.adapters.kube.identity import TlsFiles, credentials_of

pytestmark = pytest.mark.long

START = """
import sys
import kube_policy_scheduler.daemon.main as main
__import__(main.IMPORTED_MEANWHILE)
from kube_policy_scheduler.builtins.environment import environment
environment()
print(*sys.modules)
"""
DATACLASSES = """
import kube_policy_scheduler.daemon.main as main
__import__(main.IMPORTED_MEANWHILE)
from kube_policy_scheduler.builtins.environment import environment
environment()
import sys
for name, module in list(sys.modules.items()):
    if name.startswith("kube_policy_scheduler"):
        for thing in list(vars(module).values()):
            if isinstance(thing, type) and thing.__module__ == name and "__dataclass_fields__" in vars(thing):
                print(f"{name}.{thing.__name__}")
"""
MADE_AT_IMPORT = """
import re, sys
import msgspec
import kube_policy_scheduler.daemon.main as main
__import__(main.IMPORTED_FIRST)
__import__(main.IMPORTED_MEANWHILE)
from kube_policy_scheduler.builtins.environment import environment
environment()
kinds = re.Pattern, msgspec.json.Decoder, msgspec.msgpack.Decoder
for name, module in list(sys.modules.items()):
    if name.startswith("kube_policy_scheduler"):
        for called, thing in vars(module).items():
            if isinstance(thing, kinds) or isinstance(getattr(thing, "__self__", None), kinds):
                print(f"{name}.{called}")
"""
BEFORE_THE_FIRST_REQUEST = """
import sys
import kube_policy_scheduler.daemon.main
import kube_policy_scheduler.daemon.watching.api_server
from kube_policy_scheduler.adapters.kube.identity import TlsFiles, credentials_of
credentials_of("https://127.0.0.1", source="a test", headers=(), tls=TlsFiles(), files=())
print(*sys.modules)
"""
ONLY_THEN = ("numpy", "urllib.request", "prometheus_client", "kube_policy_scheduler.lang.syntax")
"""Modules that take 10 to 100 ms in which the API server could answer already."""
FORK = """
import asyncio, os, threading
from kube_policy_scheduler.daemon import main
from kube_policy_scheduler.daemon.configuration.settings import Settings
os.register_at_fork(before=lambda: print("threads:", threading.active_count()))
asyncio.run(main.begin_checker(Settings())).stop()
"""
COLLECTING = """
import gc
from kube_policy_scheduler.daemon.__main__ import main
during = gc.isenabled()
main(["config", "--print-defaults"], standalone_mode=False)
print("collecting:", during, "afterwards:", gc.isenabled())
"""
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
    "prometheus_client.exposition": "the first scrape",
    "http.client": "the first scrape, as a part of `prometheus_client`, and commands",
    "cryptography": "signatures and certificates of our own",
    "kube_policy_scheduler.daemon.modes.extender": "the mode extender",
    "kube_policy_scheduler.daemon.modes.shadow": "the mode shadow",
    "numba": "compiled kernels, once the first pods are bound",
    "zlib_ng": "the first compressed answer",
    "numpy.ma": "the first `np.unique`, once the first pods are bound",
    "importlib.metadata": "the version, with the first scrape",
    "watchdog": "changes of the policies' directory, a second after it was read",
    "re2": "regular expressions in policies and selectors of devices",
    "kube_policy_scheduler.cel": "selectors of devices",
    "zoneinfo": "policies that name a time zone",
    "rich": "commands for people",
    "kube_policy_scheduler.daemon.commands.config": "its command",
    "kube_policy_scheduler.daemon.commands.webhook": "its command",
    "kube_policy_scheduler.cli": "policyctl",
    "kube_policy_scheduler.lang.reading.layout": "texts of policies, which the checker's process reads",
    "kube_policy_scheduler.lint.runner": "checks of policies, which the checker's process does",
    "kube_policy_scheduler.policy.fleet_policies": "policies of workloads",
    "kube_policy_scheduler.embedded": "a cluster of its own",
}
"""Modules, and what they are for."""
MOST_MODULES = 476
"""Of ours: each takes 0.2 to 0.5 ms. There are 475; import later what the first binding does not need."""
MOST_DATACLASSES = 13
"""Each takes 0.3 to 1.1 ms to make, a `msgspec.Struct` 0.03."""
MADE_FOR_THE_FIRST_BINDING = {
    "kube_policy_scheduler.adapters.kube.resources._is_plain",
    "kube_policy_scheduler.cluster.signals._LABELS",
    "kube_policy_scheduler.documents.yaml_nodes._pattern",
    "kube_policy_scheduler.kubernetes_rules._VERSION",
    "kube_policy_scheduler.policy.units._BY_NAMESPACE",
    "kube_policy_scheduler.quantities.quantity._QUANTITY",
}
"""Patterns and decoders that an import makes. One takes 0.1 to 4 ms. `re` compiles and keeps a text with its first use,
and `msgspec.json.decode` reads annotations with the first object."""


def printed(program: str) -> str:
    bare = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


@pytest.fixture(scope="module")
def imported() -> set[str]:
    return set(printed(START).split())


def test_the_scheduler_itself_is_imported(imported: set[str]) -> None:
    assert {
        "kube_policy_scheduler.daemon.scheduling.schedule_one",
        "kube_policy_scheduler.lang.load",
        "kube_policy_scheduler.adapters.kube.reflector",
    } <= imported


@pytest.mark.parametrize("module", NOT_AT_THE_START)
def test_a_start_does_without(module: str, imported: set[str]) -> None:
    assert module not in imported, f"only for {NOT_AT_THE_START[module]}: import it where that is done"


def test_a_start_imports_few_modules(imported: set[str]) -> None:
    ours = [name for name in imported if name.startswith("kube_policy_scheduler")]
    assert len(ours) <= MOST_MODULES


def test_a_start_makes_few_dataclasses() -> None:
    made = printed(DATACLASSES).split()
    assert len(made) <= MOST_DATACLASSES, made


def test_patterns_and_decoders_are_made_with_their_first_use() -> None:
    assert set(printed(MADE_AT_IMPORT).split()) <= MADE_FOR_THE_FIRST_BINDING


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have proxies of their own")
def test_the_first_request_is_sent_before_what_decides_is_imported() -> None:
    assert not set(printed(BEFORE_THE_FIRST_REQUEST).split()) & set(ONLY_THEN)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems begin a process from nothing")
def test_the_checker_is_forked_where_no_thread_can_hold_a_lock() -> None:
    assert printed(FORK) == "threads: 1\n"


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "all_proxy"])
def test_proxies_of_the_environment_are_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://proxy.example:3128")
    found = credentials_of("https://127.0.0.1", source="a test", headers=(), tls=TlsFiles(), files=())
    assert found.proxy == "http://proxy.example:3128"


def test_nothing_is_collected_while_the_program_is_imported_and_subcommands_collect_as_usual() -> None:
    assert printed(COLLECTING).splitlines()[-1] == "collecting: False afterwards: True"
