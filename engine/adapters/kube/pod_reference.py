"""Which object an event or a status is about: the few words of it that outlive the object."""

from __future__ import annotations

import msgspec

from engine.cluster.objects import Pod


class Reference(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """An ObjectReference, as events carry it."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


def reference_to(pod: Pod) -> Reference:
    """Return the reference to a pod."""
    meta = pod.metadata
    return Reference("Pod", meta.name, meta.namespace, meta.uid, "v1", meta.resource_version)
