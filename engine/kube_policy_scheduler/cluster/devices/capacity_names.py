"""Names of capacities: since Kubernetes 1.38, `memory` and `DRIVER/memory` are one.

Everything that counts capacities knows them by `capacity_key`. What is written into a claim has the name as the device
publishes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules

T = TypeVar("T")


def capacity_key(name: str, driver: str, rules: KubernetesRules) -> str:
    """Return what a capacity of a device is known by."""
    return f"{driver}/{name}" if Feature.QUALIFIED_CAPACITY_NAMES in rules and "/" not in name else name


def by_capacity_key(named: Mapping[str, T], driver: str, rules: KubernetesRules) -> Mapping[str, T]:
    """Return values by what their capacities are known by; of two names for one, the qualified one counts."""
    if Feature.QUALIFIED_CAPACITY_NAMES not in rules:
        return named
    bare_first = sorted(named, key=lambda name: "/" in name)
    return {capacity_key(name, driver, rules): named[name] for name in bare_first}
