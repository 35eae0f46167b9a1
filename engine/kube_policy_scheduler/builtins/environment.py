"""The environment of policies: everything that the modules of this package define."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from types import MappingProxyType

from kube_policy_scheduler import builtins
from kube_policy_scheduler.builtins.metrics import QUERIES
from kube_policy_scheduler.builtins.node_fields import REGION_LABEL, ZONE_LABEL
from kube_policy_scheduler.builtins.pods import CountedPods
from kube_policy_scheduler.framework.choice import DeviceRule, Ties
from kube_policy_scheduler.framework.kubernetes import filters_needed_by_kubelet, kubernetes_filters, kubernetes_scores
from kube_policy_scheduler.lang.environment import Environment, collect


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return what a policy may name; always the same."""
    names = (module.name for module in pkgutil.iter_modules(builtins.__path__))
    fields, functions = collect(importlib.import_module(f"{builtins.__name__}.{name}") for name in names)
    return Environment(
        fields=MappingProxyType(fields),
        builtins=MappingProxyType(functions),
        pods=CountedPods(),
        plugins=frozenset(plugin.name for plugin in kubernetes_filters()),
        needed_by_kubelet=filters_needed_by_kubelet(),
        scores=MappingProxyType({score.plugin.name: score.weight for score in kubernetes_scores()}),
        ties=tuple(rule.value for rule in Ties),
        devices=tuple(rule.value for rule in DeviceRule),
        queries=QUERIES,
        topologies=MappingProxyType({"node": None, "zone": ZONE_LABEL, "region": REGION_LABEL}),
    )
