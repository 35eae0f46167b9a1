"""Evicts pods through the Eviction API, which honours PodDisruptionBudgets: one after another, each once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

import msgspec

from kube_policy_scheduler.adapters.kube.client import Client
from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError, NotFound, ServerError, TooManyRequests
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence

EVICTED = "evicted"
LATER = "later"
NEVER = "never"
FAILED = "failed"
_TIMEOUT_SECONDS = 15.0


class Evicted(NamedTuple):
    """One pod to evict."""

    namespace: str
    name: str
    uid: str
    """The pod is left alone if another one has its name by now."""


async def evict(
    pods: Sequence[Evicted], *, kubeconfig: str | None, context: str | None
) -> AsyncGenerator[tuple[Evicted, str], None]:
    """Evict pods in turn; yield each with the outcome: `evicted`, or why not.

    Raises:
        CredentialsError: no usable kubeconfig.
    """
    from kube_policy_scheduler.adapters.kube.official_client import OfficialClient  # for commands

    async with OfficialClient.of(kubeconfig=kubeconfig, context=context) as client:
        for pod in pods:
            yield pod, await PodEvictor(client).evict(pod)


class PodEvictor:
    """Evicts pods through the Eviction API, one request each."""

    def __init__(self, client: Client, *, fence: Fence = OPEN) -> None:
        """fence: asked right before a request goes out, so that a former leader evicts nobody."""
        self._client, self._fence = client, fence

    async def evict(self, pod: Evicted) -> str:
        """Return `evicted`, or why not: `later: …`, `never: …`, `failed: …`, `gone already` and the like."""
        body = msgspec.json.encode(
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod.name, "namespace": pod.namespace},
                "deleteOptions": {"preconditions": {"uid": pod.uid}},
            }
        )
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        try:
            await self._client.request(
                "POST", path, body=body, resource="pods/eviction", timeout_seconds=_TIMEOUT_SECONDS, fence=self._fence
            )
        except NotFound:
            return "gone already"
        except Conflict:
            return "another pod has its name by now"
        except TooManyRequests as error:
            return f"{LATER}: {error.message}"
        except ServerError as error:
            several = "more than one PodDisruptionBudget" in error.message
            return f"{NEVER}: {error.message}" if several else f"{FAILED}: {error}"
        except KubeError as error:
            return f"{FAILED}: {error}"
        return EVICTED
