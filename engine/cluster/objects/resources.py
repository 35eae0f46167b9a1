"""What containers and claims ask for, and the classes of devices that can be asked for by name."""

from __future__ import annotations

from msgspec import field

from engine.cluster.objects.metadata import ObjectMeta
from engine.cluster.objects.structs import ApiStruct, Resources


class ResourceRequirements(ApiStruct):
    requests: Resources | None = None
    limits: Resources | None = None


class DeviceClassSpec(ApiStruct):
    extended_resource_name: str | None = None


class DeviceClass(ApiStruct):
    metadata: ObjectMeta
    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)
