"""The order of strength of resources: of two guarantees that cannot both hold, the one of the weaker resource yields.

Without an order, two queues that are each guaranteed what the other one lacks would evict each other for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

_CLASS = ".deviceclass.resource.k8s.io/devices"
"""How the names of resources end that count the devices of a DeviceClass."""
_NATIVE = {name: 2 + number for number, name in enumerate(("cpu", "memory", "ephemeral-storage", "pods"))}


def by_strength(resources: Sequence[str]) -> list[str]:
    """Return resources with the strongest first.

    Extended resources come first, in the order in which they are given, then DeviceClasses, cpu, memory,
    ephemeral-storage and pods.
    """
    return sorted(resources, key=lambda name: _NATIVE.get(name, int(name.endswith(_CLASS))))
