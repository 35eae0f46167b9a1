"""Extended resources that DeviceClasses provide: `example.com/gpu: 1` requests a device of a class."""

from __future__ import annotations

from collections.abc import Mapping

from kube_policy_scheduler.cluster.object_store import ObjectStore
from kube_policy_scheduler.cluster.objects import DeviceClass
from kube_policy_scheduler.cluster.requests import NATIVE, is_extended
from kube_policy_scheduler.times import unix_seconds

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""A resource with this prefix names a DeviceClass."""


def class_by_resource(store: ObjectStore) -> Mapping[str, str]:
    """Return the names of the classes by the extended resource that they provide.

    Of several classes that provide one resource the newest counts, then the one with the lower name.
    """
    return store.keep("class-by-resource", store.version(DeviceClass), lambda: _class_by_resource(store))


def _class_by_resource(store: ObjectStore) -> Mapping[str, str]:
    found: dict[str, str] = {}
    classes = sorted(
        store.all(DeviceClass),
        key=lambda one: (-(unix_seconds(one.metadata.creation_timestamp) or 0.0), one.metadata.name),
    )
    for one in classes:
        found[IMPLICIT_PREFIX + one.metadata.name] = one.metadata.name
        if one.spec.extended_resource_name:
            found.setdefault(one.spec.extended_resource_name, one.metadata.name)
    return found


def may_be_provided(resource: str) -> bool:
    """Return whether a resource is one that a class can provide."""
    return resource not in NATIVE and (resource.startswith(IMPLICIT_PREFIX) or is_extended(resource))
