"""Bindings that other schedulers decide: what they run counts for limits and spreads, as pods of others do on nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from kube_policy_scheduler.fleet.karmada import reading
from kube_policy_scheduler.fleet.karmada.objects import ObjectReference, ResourceBinding
from kube_policy_scheduler.fleet.model import Workload
from kube_policy_scheduler.fleet.running import RunningWorkloads

Key = tuple[str, str]
"""Namespace and name of a binding."""


class _Other(msgspec.Struct, eq=False):
    template: ObjectReference
    workload: Workload


class OtherBindings:
    """Those that run somewhere."""

    def __init__(self, running: RunningWorkloads) -> None:
        """running: where they count."""
        self._running = running
        self._known: dict[Key, _Other] = {}
        self.unread: dict[Key, None] = {}
        """Those whose template has not been read: nobody knows for which limits they count."""

    def put(self, key: Key, binding: ResourceBinding) -> bool:
        """Take a binding as it is now; return whether it has left a cluster."""
        before = self._known.get(key)
        try:
            workload = reading.workload(binding)
        except reading.BindingError:
            return False  # it runs where it did
        if not workload.has:
            return self.remove(key)
        if before is not None and before.template == binding.spec.resource and key not in self.unread:
            workload = replace(workload, labels=before.workload.labels, annotations=before.workload.annotations)
        else:
            self.unread[key] = None
        if before is not None and before.workload.identity != workload.identity:
            self._running.remove(before.workload)
        self._known[key] = _Other(binding.spec.resource, workload)
        self._running.put(workload)
        return before is not None and any(
            count > workload.has.get(name, 0) for name, count in before.workload.has.items()
        )

    def remove(self, key: Key) -> bool:
        """Forget a binding; return whether it ran anywhere."""
        self.unread.pop(key, None)
        before = self._known.pop(key, None)
        if before is not None:
            self._running.remove(before.workload)
        return before is not None

    def keep(self, keys: Iterable[Key], *, namespaced: bool) -> bool:
        """Take note that of all bindings with a namespace, or of all without one, only these are there.

        Returns:
            Whether one is gone.
        """
        listed = frozenset(keys)
        gone = [key for key in self._known if bool(key[0]) is namespaced and key not in listed]
        for key in gone:
            self.remove(key)
        return bool(gone)

    def template(self, key: Key) -> ObjectReference | None:
        """Return the template that is to be read; None if it was, or nobody knows the binding."""
        return self._known[key].template if key in self.unread else None

    def read(self, key: Key, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> None:
        """Take what was read of a template; None: it cannot be read."""
        known = self._known.get(key)
        if known is not None and key in self.unread:
            del self.unread[key]
            known.workload = replace(known.workload, labels=labels, annotations=annotations)
            self._running.put(known.workload)
