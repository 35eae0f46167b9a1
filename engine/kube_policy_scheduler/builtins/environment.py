"""The environment of policies: everything that the modules here define, collected."""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType

from kube_policy_scheduler.builtins import (
    claimed_devices,
    comparing,
    devices,
    metrics,
    node_fields,
    numbers,
    pod_fields,
    rules,
    texts,
    times,
)
from kube_policy_scheduler.builtins.node_fields import REGION_LABEL, ZONE_LABEL
from kube_policy_scheduler.builtins.pods import CountedPods
from kube_policy_scheduler.framework.choice import Ties
from kube_policy_scheduler.framework.device_choice import DeviceRule
from kube_policy_scheduler.framework.kubernetes import kubernetes_filters
from kube_policy_scheduler.lang.environment import Environment, collect

MODULES = (claimed_devices, comparing, devices, metrics, node_fields, numbers, pod_fields, rules, texts, times)
"""Where fields and functions are defined; a new module is named here, a new function is not."""


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return what a policy may name; always the same."""
    fields, builtins = collect(MODULES)
    return Environment(
        fields=MappingProxyType(fields),
        builtins=MappingProxyType(builtins),
        pods=CountedPods(),
        plugins=frozenset(plugin.name for plugin in kubernetes_filters()),
        ties=tuple(rule.value for rule in Ties),
        devices=tuple(rule.value for rule in DeviceRule),
        topologies=MappingProxyType({"node": None, "zone": ZONE_LABEL, "region": REGION_LABEL}),
    )
