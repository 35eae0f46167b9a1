"""Who an object is: its name, labels and owners."""

from __future__ import annotations

from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Labels


class OwnerReference(ApiStruct):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class ObjectMeta(ApiStruct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Labels | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None


class ObjectReference(ApiStruct):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
