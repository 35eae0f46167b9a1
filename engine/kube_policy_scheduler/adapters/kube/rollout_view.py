"""What a rollout of policies is judged by, read from the API server: ConfigMap, reports of replicas, their number."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import quote

import msgspec

from kube_policy_scheduler.adapters.kube.config_maps import get_config_map
from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.errors import Forbidden, MalformedAnswer, NotFound
from kube_policy_scheduler.adapters.kube.replica_reports import ReplicaReport, decode_reports
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.policy_sources import PolicySources, policies_of_config_map


class _Spec(msgspec.Struct):
    replicas: int = 1


class _Deployment(msgspec.Struct):
    spec: _Spec


@dataclass(frozen=True, slots=True)
class RolloutPlaces:
    """Where things are in the cluster."""

    namespace: str
    config_map: str
    lease: str
    deployment: str


class RolloutView:
    """Reads with a kubeconfig's rights."""

    def __init__(self, places: RolloutPlaces, *, kubeconfig: str | None, context: str | None) -> None:
        self._places = places
        self._transport = Transport(find_credentials(kubeconfig=kubeconfig, context=context), max_connections=2)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def policies(self) -> PolicySources:
        """Return the policies in the ConfigMap.

        Raises:
            KubeError: it is not there, or may not be read.
            PolicySourcesError: it holds nothing that a scheduler would take.
        """
        places = self._places
        found = await get_config_map(self._transport, places.namespace, places.config_map)
        shown = f"configMap {places.namespace}/{places.config_map}"
        return policies_of_config_map(found.texts, found.binaries, shown=shown)

    async def reports(self) -> tuple[ReplicaReport, ...]:
        """Return what replicas say, by name; nothing where none has said anything yet. Raises KubeError."""
        places = self._places
        path = f"/apis/coordination.k8s.io/v1/namespaces/{_part(places.namespace)}/leases/{_part(places.lease)}"
        try:
            found = decode_reports(await self._get(path))
        except NotFound:
            return ()
        except msgspec.MsgspecError as error:
            raise MalformedAnswer(f"lease {places.lease}: {error}") from error
        return tuple(sorted(found.values(), key=lambda report: report.replica))

    async def replicas(self) -> int | None:
        """Return how many replicas there should be; None where that cannot be known. Raises KubeError."""
        places = self._places
        path = f"/apis/apps/v1/namespaces/{_part(places.namespace)}/deployments/{_part(places.deployment)}"
        try:
            return msgspec.json.decode(await self._get(path), type=_Deployment).spec.replicas
        except (NotFound, Forbidden, msgspec.MsgspecError):
            return None

    async def _get(self, path: str) -> bytes:
        return await self._transport.request("GET", path, timeout_seconds=10.0)


def _part(text: str) -> str:
    return quote(text, safe="")
