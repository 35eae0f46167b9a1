"""Whether the API server keeps everybody but the scheduler from writing which devices a pod has.

It does by the ValidatingAdmissionPolicy of `deploy/base/device-annotation.yaml`.
"""

from __future__ import annotations

import msgspec

from kube_policy_scheduler.adapters.kube.errors import Forbidden, NotFound
from kube_policy_scheduler.adapters.kube.transport import Transport

NAME = "policy-scheduler-devices"
"""Of the policy, and of its binding."""
_GROUP = "/apis/admissionregistration.k8s.io/v1"
_POLICIES = "validatingadmissionpolicies"
_BINDINGS = "validatingadmissionpolicybindings"


class _PolicySpec(msgspec.Struct, rename="camel", frozen=True):
    failure_policy: str = "Fail"
    validations: list[msgspec.Raw] = []


class _Policy(msgspec.Struct, frozen=True):
    spec: _PolicySpec = _PolicySpec()


class _BindingSpec(msgspec.Struct, rename="camel", frozen=True):
    policy_name: str = ""
    validation_actions: list[str] = []


class _Binding(msgspec.Struct, frozen=True):
    spec: _BindingSpec = _BindingSpec()


async def why_unprotected(transport: Transport) -> str:
    """Return why others can write the annotation, "" where they cannot.

    Raises:
        KubeError: the API server could not be asked.
    """
    try:
        policy = msgspec.json.decode(await _get(transport, _POLICIES), type=_Policy).spec
        binding = msgspec.json.decode(await _get(transport, _BINDINGS), type=_Binding).spec
    except NotFound:
        return f"the ValidatingAdmissionPolicy {NAME} or its binding does not exist: apply deploy/base"
    except Forbidden as error:
        return f"cannot read the ValidatingAdmissionPolicy {NAME}: {error.message}"
    except msgspec.MsgspecError as error:
        return f"cannot decode the ValidatingAdmissionPolicy {NAME}: {error}"
    if not policy.validations or policy.failure_policy != "Fail":
        return f"the ValidatingAdmissionPolicy {NAME} does not reject all requests: apply deploy/base again"
    if binding.policy_name != NAME or "Deny" not in binding.validation_actions:
        return f"the ValidatingAdmissionPolicyBinding {NAME} denies nothing: apply deploy/base again"
    return ""


async def _get(transport: Transport, plural: str) -> bytes:
    return await transport.request("GET", f"{_GROUP}/{plural}/{NAME}", resource=plural)
