"""All objects of the kinds that rules read, listed once: for commands that look at a cluster and end."""

from __future__ import annotations

from typing import Any

from engine.adapters.kube import resources
from engine.adapters.kube.credentials import find_credentials
from engine.adapters.kube.decoding import ObjectDecoder
from engine.adapters.kube.errors import Forbidden, NotFound
from engine.adapters.kube.resources import Resource
from engine.adapters.kube.transport import Transport

PAGE_OBJECTS = 500
LIST_TIMEOUT_SECONDS = 60.0  # per page
_OPTIONAL: tuple[Resource[Any], ...] = (
    resources.NAMESPACES,
    resources.SERVICES,
    resources.REPLICATION_CONTROLLERS,
    resources.REPLICA_SETS,
    resources.STATEFUL_SETS,
    resources.POD_DISRUPTION_BUDGETS,
    resources.PERSISTENT_VOLUMES,
    resources.PERSISTENT_VOLUME_CLAIMS,
    resources.STORAGE_CLASSES,
    resources.CSI_NODES,
    resources.CSI_DRIVERS,
    resources.CSI_STORAGE_CAPACITIES,
    resources.VOLUME_ATTACHMENTS,
    resources.DEVICE_CLASSES,
)


async def list_cluster(*, kubeconfig: str | None, context: str | None) -> tuple[list[Any], list[str]]:
    """Return nodes, unfinished pods and what else rules read; and the kinds that could not be listed.

    Raises:
        KubeError: nodes or pods cannot be listed.
        CredentialsError: no usable kubeconfig.
    """
    transport = Transport(find_credentials(kubeconfig=kubeconfig, context=context))
    try:
        found = await _objects(transport, resources.NODES)
        found += await _objects(transport, resources.PODS, field_selector=resources.UNFINISHED_PODS)
        missing: list[str] = []
        for resource in _OPTIONAL:
            try:
                found += await _objects(transport, resource)
            except (Forbidden, NotFound):
                missing.append(str(resource))
        return found, missing
    finally:
        await transport.close()


async def _objects(transport: Transport, resource: Resource[Any], *, field_selector: str = "") -> list[Any]:
    decoder = ObjectDecoder(resource.type)
    query = {"limit": str(PAGE_OBJECTS)} | ({"fieldSelector": field_selector} if field_selector else {})
    found: list[Any] = []
    while True:
        path = resource.collection(query=query)
        body = await transport.request("GET", path, resource=resource.plural, timeout_seconds=LIST_TIMEOUT_SECONDS)
        page = decoder.page(body)
        found += page.objects
        if not page.metadata.continue_:
            return found
        query["continue"] = page.metadata.continue_
