"""The environment of policies: everything that the modules of this package define."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import msgspec

from kube_policy_scheduler import builtins
from kube_policy_scheduler.builtins.extensions import calls_without_value, load_extensions, untrained
from kube_policy_scheduler.builtins.metrics import QUERIES
from kube_policy_scheduler.builtins.node_fields import REGION_LABEL, ZONE_LABEL
from kube_policy_scheduler.builtins.pods import CountedPods
from kube_policy_scheduler.fleet.columns import PROVIDER_KEY, REGION_KEY, ZONE_KEY
from kube_policy_scheduler.framework.choice import Ties
from kube_policy_scheduler.framework.decide.gang_domains import DomainRule
from kube_policy_scheduler.framework.default_profile import (
    filters_needed_by_kubelet,
    kubernetes_filters,
    kubernetes_scores,
)
from kube_policy_scheduler.framework.devices.device_order import DeviceRule
from kube_policy_scheduler.lang.environment import OF_PODS, OF_WORKLOADS, Environment, Field, Subject, collect
from kube_policy_scheduler.lang.signature import Builtin
from kube_policy_scheduler.lang.types import Depends


def install_extensions(names: Sequence[str], *, stopwatch: Callable[[], float] | None) -> None:
    """Let policies of this process call functions of installed packages, from now on; of no others.

    Args:
        names: of their entry points, as the configuration has them.
        stopwatch: returns seconds; None: no function is switched off because it is slow, as nothing waits for it.

    Raises:
        ExtensionError: a package is not installed or not usable.
    """
    global _extensions
    if tuple(names) != _installed():
        _extensions = tuple(names), load_extensions(names, _own()[1], stopwatch=stopwatch)
        environment.cache_clear()


def extension_failures() -> dict[tuple[str, str], int]:
    """Return how often functions of installed packages gave no value so far, by name and reason."""
    return calls_without_value(_extensions[1].values())


def extension_problems() -> list[str]:
    """Return which functions of installed packages cannot work here, why, and what to do."""
    reasons = (function.words.unusable for function in _extensions[1].values())
    return list(dict.fromkeys(problem for why in reasons if why is not None and (problem := why())))


_extensions: tuple[tuple[str, ...], dict[str, Builtin]] = ((), {})


def _installed() -> tuple[str, ...]:
    return _extensions[0]


@lru_cache(maxsize=1)
def _own() -> tuple[dict[str, Field], dict[str, Builtin]]:
    names = (module.name for module in pkgutil.iter_modules(builtins.__path__))
    return collect(importlib.import_module(f"{builtins.__name__}.{name}") for name in names)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return what a policy may name; always the same, but for `install_extensions`."""
    fields, functions = _own()
    functions = dict(sorted((functions | _extensions[1]).items()))
    of_pods = Environment(
        fields=_fields_of(OF_PODS, fields),
        builtins=MappingProxyType(functions),
        pods=CountedPods(),
        plugins=frozenset(plugin.name for plugin in kubernetes_filters()),
        needed_by_kubelet=filters_needed_by_kubelet(),
        scores=MappingProxyType({score.plugin.name: score.weight for score in kubernetes_scores()}),
        ties=tuple(rule.value for rule in Ties),
        devices=tuple(rule.value for rule in DeviceRule),
        domains=tuple(rule.value for rule in DomainRule),
        queries=QUERIES,
        topologies=MappingProxyType({"node": None, "zone": ZONE_LABEL, "region": REGION_LABEL}),
    )
    return msgspec.structs.replace(of_pods, others=(_of_workloads(fields, functions, of_pods),))


_KARMADA_FILTERS = frozenset(
    ("ClusterEviction", "APIEnablement", "TaintToleration", "ClusterAffinity", "SpreadConstraint", "WorkloadAffinity",
     "WorkloadAntiAffinity")
)  # fmt: skip
_OF_NO_POD = Depends.SIGNAL | Depends.FEASIBLE | Depends.CLOCK
"""What a function may follow from that serves policies of workloads, too."""


def _of_workloads(fields: Mapping[str, Field], functions: Mapping[str, Builtin], of_pods: Environment) -> Environment:
    """Return what a policy of workloads may name: clusters are its rows."""
    usable = {name: each for name, each in functions.items() if not each.depends & ~_OF_NO_POD and not each.reads}
    return Environment(
        fields=_fields_of(OF_WORKLOADS, fields),
        builtins=MappingProxyType(usable),
        pods=CountedPods(),
        plugins=_KARMADA_FILTERS,
        queries=QUERIES,
        topologies=MappingProxyType(
            {"cluster": None, "zone": ZONE_KEY, "region": REGION_KEY, "provider": PROVIDER_KEY}
        ),
        subject=OF_WORKLOADS,
        members=of_pods,
    )


def _fields_of(subject: Subject, fields: Mapping[str, Field]) -> Mapping[str, Field]:
    return MappingProxyType({path: each for path, each in fields.items() if path.split(".")[0] in subject.roots})


def untrained_environment() -> Environment:
    """Return what a policy may name before the models that it names are trained: `builtins.extensions.untrained`."""
    known = environment()
    functions = {name: untrained(each) if each.words.trained else each for name, each in known.builtins.items()}
    return msgspec.structs.replace(known, builtins=MappingProxyType(functions))
