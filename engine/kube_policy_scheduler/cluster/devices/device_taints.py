"""Taints of devices that DeviceTaintRules add to those that drivers publish."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules

Selection: TypeAlias = tuple[str | None, str | None, str | None]
"""Driver, pool and device that a rule is about; None: any."""


KEEPING_AWAY = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints for which a request needs a toleration; others, also unknown ones, keep no device from anybody."""


class DeviceTaintRules:
    """All DeviceTaintRules of the cluster, by what they select."""

    def __init__(self, rules: KubernetesRules) -> None:
        """Begin without any. rules: of the Kubernetes whose rules they are."""
        self._rules = rules
        self._selections: dict[str, Selection] = {}
        """By the name of the rule."""
        self._taints: dict[Selection, dict[str, objects.DeviceTaint]] = {}
        """By selection and the name of the rule."""

    def set(self, rule: objects.DeviceTaintRule) -> bool:
        """Add or update a rule; return whether devices may have other taints."""
        name, selection = rule.metadata.name, selected_by(rule, self._rules)
        before = self._selections.get(name)
        if before == selection and (before is None or self._taints[before][name] == rule.spec.taint):
            return False
        self.remove(name)
        if selection is not None:
            self._selections[name] = selection
            self._taints.setdefault(selection, {})[name] = rule.spec.taint
        return True

    def remove(self, name: str) -> None:
        """Forget a rule."""
        selection = self._selections.pop(name, None)
        if selection is not None:
            taints = self._taints[selection]
            del taints[name]
            if not taints:
                del self._taints[selection]

    def selection(self, name: str) -> Selection | None:
        """Return what a rule selects; None: no device."""
        return self._selections.get(name)

    def taints_of(self, device: tuple[str, str, str]) -> Sequence[tuple[str, objects.DeviceTaint]]:
        """Return the taints that rules add to a device (driver, pool, name), each with the name of its rule."""
        known = self._taints
        if not known:
            return ()
        selections = product(*((None, part) for part in device))
        return [named for each in selections if each in known for named in known[each].items()]


def selected_by(rule: objects.DeviceTaintRule, rules: KubernetesRules) -> Selection | None:
    """Return what a rule selects; None: no device."""
    if Feature.DRA_DEVICE_TAINT_RULES not in rules:
        return None
    selector = rule.spec.device_selector
    if selector is None:
        return None if Feature.TAINT_RULES_NEED_SELECTORS in rules else (None, None, None)
    return selector.driver, selector.pool, selector.device
