"""Evicts pods through the Eviction API, which honours PodDisruptionBudgets: one after another, each once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

import msgspec

from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError, NotFound, ServerError, TooManyRequests
from kube_policy_scheduler.adapters.kube.transport import Transport

EVICTED = "evicted"
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
    """Evict pods in turn; yield each with what became of it: `evicted`, or why not.

    Raises:
        CredentialsError: no usable kubeconfig.
    """
    transport = Transport(find_credentials(kubeconfig=kubeconfig, context=context), max_connections=1)
    try:
        for pod in pods:
            yield pod, await _evict(transport, pod)
    finally:
        await transport.close()


async def _evict(transport: Transport, pod: Evicted) -> str:
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
        await transport.request(
            "POST", path, body=body, resource=f"pods/eviction {pod.namespace}/{pod.name}",
            timeout_seconds=_TIMEOUT_SECONDS,
        )  # fmt: skip
    except NotFound:
        return "gone already"
    except Conflict:
        return "another pod has its name by now"
    except TooManyRequests as error:
        return f"later: {error.message}"
    except ServerError as error:
        return f"never: {error.message}" if "more than one PodDisruptionBudget" in error.message else f"failed: {error}"
    except KubeError as error:
        return f"failed: {error}"
    return EVICTED
