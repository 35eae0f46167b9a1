"""What containers and claims ask for."""

from __future__ import annotations

from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Resources


class ResourceRequirements(ApiStruct):
    requests: Resources | None = None
    limits: Resources | None = None
