"""What the server declares to serve: versions, groups and resources, plain and aggregated. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Any

from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.resources import Catalog, Resource

_SUBRESOURCE_KINDS: dict[str, tuple[str, str, str]] = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
_SUBRESOURCE_VERBS: dict[str, tuple[str, ...]] = {
    "binding": ("create",),
    "eviction": ("create",),
    "finalize": ("update",),
    "log": ("get",),
    "token": ("create",),
}
_CHANGE = ("get", "patch", "update")


def version(catalog: Catalog) -> Json:
    """Return the answer to `/version`."""
    minor = str(catalog.version.minor)
    return {
        "major": "1",
        "minor": minor,
        "emulationMajor": "1",
        "emulationMinor": minor,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": str(catalog.version.minor - 1),
        "gitVersion": f"{catalog.git_version}+embedded",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "python",
    }


def _key(resource: Resource) -> tuple[str, str]:
    return resource.group, resource.version


def _priority(resource: Resource) -> tuple[str, bool, bool, str]:
    """Return by what group versions are ordered: the preferred version of a group first, as in `v1`, `v1beta1`."""
    return resource.group, "alpha" in resource.version, "beta" in resource.version, resource.version


@lru_cache(maxsize=16)
def _by_group_version(catalog: Catalog) -> dict[tuple[str, str], list[Resource]]:
    ordered = sorted(catalog.resources, key=_priority)
    return {key: list(members) for key, members in groupby(ordered, key=_key)}


def groups(catalog: Catalog) -> list[str]:
    """Return the names of the API groups, without the legacy group."""
    return sorted({group for group, _ in _by_group_version(catalog) if group})


def api_versions(address: str) -> Json:
    """Return the answer to `/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def api_group(catalog: Catalog, name: str) -> Json | None:
    """Return one API group, None when it is not served."""
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for group, version in _by_group_version(catalog)
        if group == name and group
    ]
    if not versions:
        return None
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def api_group_list(catalog: Catalog) -> Json:
    """Return the answer to `/apis`."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [api_group(catalog, name) for name in groups(catalog)],
    }


def resource_list(catalog: Catalog, group: str, version: str) -> Json | None:
    """Return the resources of one group version, None when it is not served."""
    members = _by_group_version(catalog).get((group, version))
    if members is None:
        return None
    listed = [row for resource in members for row in _rows(resource)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": listed,
    }


def _rows(resource: Resource) -> Iterable[Json]:
    row: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    yield row
    for subresource in resource.subresources:
        group, version, kind = _subresource_kind(resource, subresource)
        sub: Json = {
            "name": f"{resource.plural}/{subresource}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": list(_SUBRESOURCE_VERBS.get(subresource, _CHANGE)),
        }
        if (group, version) != (resource.group, resource.version):
            sub |= {"group": group, "version": version}
        yield sub


def _subresource_kind(resource: Resource, subresource: str) -> tuple[str, str, str]:
    if subresource == "binding" and resource.kind != "Pod":
        return resource.group, resource.version, resource.kind
    return _SUBRESOURCE_KINDS.get(subresource, (resource.group, resource.version, resource.kind))


def aggregated(catalog: Catalog, *, legacy: bool, version: str = "v2") -> Json:
    """Return all groups with all their resources in one document, as newer kubectl requests it."""
    names = [""] if legacy else groups(catalog)
    items = []
    for name in names:
        versions = [
            {
                "version": member_version,
                "resources": [_aggregated_resource(resource) for resource in members],
                "freshness": "Current",
            }
            for (group, member_version), members in _by_group_version(catalog).items()
            if group == name
        ]
        items.append({"metadata": {"name": name, "creationTimestamp": None}, "versions": versions})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(resource: Resource) -> Json:
    row: Json = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    subresources: list[Any] = []
    for subresource in resource.subresources:
        group, version, kind = _subresource_kind(resource, subresource)
        subresources.append(
            {
                "subresource": subresource,
                "responseKind": {"group": group, "version": version, "kind": kind},
                "verbs": list(_SUBRESOURCE_VERBS.get(subresource, _CHANGE)),
            }
        )
    if subresources:
        row["subresources"] = subresources
    return row
