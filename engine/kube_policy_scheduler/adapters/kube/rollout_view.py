"""What a rollout of policies is judged by, read from the API server: policies, reports of replicas, their number."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import quote

import msgspec

from kube_policy_scheduler.adapters.files.policy_sources import (
    PolicySources,
    PolicySourcesError,
    policies_of_config_map,
)
from kube_policy_scheduler.adapters.kube.config_maps import get_config_map
from kube_policy_scheduler.adapters.kube.errors import Forbidden, MalformedAnswer, NotFound
from kube_policy_scheduler.adapters.kube.official_client import OfficialClient
from kube_policy_scheduler.adapters.kube.replica_reports import ReplicaReport, decode_reports
from kube_policy_scheduler.adapters.kube.scheduling_policies import get_scheduling_policies


class _Spec(msgspec.Struct):
    replicas: int = 1


class _Deployment(msgspec.Struct):
    spec: _Spec


@dataclass(frozen=True, slots=True)
class RolloutPlaces:
    """Where things are in the cluster."""

    namespace: str
    """Of everything but SchedulingPolicies."""
    config_map: str
    lease: str
    deployment: str
    home: str = ""
    """The namespace whose SchedulingPolicies are the policies, instead of the ConfigMap."""


class RolloutView:
    """Reads with a kubeconfig's rights."""

    def __init__(self, places: RolloutPlaces, *, kubeconfig: str | None, context: str | None) -> None:
        self._places = places
        self._client = OfficialClient.of(kubeconfig=kubeconfig, context=context)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()

    async def policies(self) -> PolicySources:
        """Return the policies in the ConfigMap, or those of the SchedulingPolicies.

        Raises:
            KubeError: they are not there, or may not be read.
            PolicySourcesError: the scheduler would not accept them.
        """
        places = self._places
        if places.home:
            sources = (await get_scheduling_policies(self._client, places.home)).sources(places.home)
            if isinstance(sources, PolicySourcesError):
                raise sources
            return sources
        found = await get_config_map(self._client, places.namespace, places.config_map)
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
        return await self._client.request("GET", path, timeout_seconds=10.0)


def _part(text: str) -> str:
    return quote(text, safe="")
