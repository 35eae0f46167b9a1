"""kube-scheduler's default profile: its filters in their order, its scores with their weights (Kubernetes 1.36).

In addition, DeviceShares, which applies only to pods that request shares of devices.

A class in `plugins` with a `default` belongs to the profile; there is no other list.
"""

from __future__ import annotations

import importlib
import pkgutil

from kube_policy_scheduler.framework import plugins
from kube_policy_scheduler.framework.plugin import Default, FilterPlugin, ScorePlugin, Weighted
from kube_policy_scheduler.framework.profile import Profile

DEFAULT_PROFILE_NAME = "kubernetes"


def _default_plugins() -> dict[type, Default]:
    """Return the classes that have a place in the default profile, in order."""
    found: dict[type, Default] = {}
    for module in pkgutil.iter_modules(plugins.__path__):
        for value in vars(importlib.import_module(f"{plugins.__name__}.{module.name}")).values():
            if isinstance(value, type) and isinstance(default := vars(value).get("default"), Default):
                found[value] = default
    return dict(sorted(found.items(), key=lambda item: item[1]))


_PLUGINS = _default_plugins()


def kubernetes_filters() -> tuple[FilterPlugin, ...]:
    """Return kube-scheduler's default filters in their order, then DeviceShares."""
    return tuple(plugin() for plugin in _PLUGINS if issubclass(plugin, FilterPlugin))


def kube_scheduler_filters() -> tuple[str, ...]:
    """Return the names of kube-scheduler's own default filters, in order."""
    return tuple(plugin.name for plugin in kubernetes_filters() if not _PLUGINS[type(plugin)].is_ours)


def filters_needed_by_kubelet() -> frozenset[str]:
    """Return the names of the filters without which pods can be bound to nodes that cannot run them."""
    return frozenset(plugin.name for plugin in kubernetes_filters() if _PLUGINS[type(plugin)].needed_by_kubelet)


def kubernetes_scores() -> tuple[Weighted, ...]:
    """Return kube-scheduler's default scores with their weights."""
    scores = ((plugin, default) for plugin, default in _PLUGINS.items() if issubclass(plugin, ScorePlugin))
    return tuple(Weighted(plugin(), default.weight) for plugin, default in scores)


def kubernetes_profile(name: str = DEFAULT_PROFILE_NAME) -> Profile:
    """Return the profile of a scheduler without policies."""
    return Profile(name, kubernetes_filters(), kubernetes_scores())
