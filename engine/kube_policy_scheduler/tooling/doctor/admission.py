"""Which admission webhooks and policies see what the scheduler writes of a pod: its binding and its status.

One that refuses, or does not answer, keeps pods from being bound, or keeps autoscalers from seeing why they wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.tooling.doctor.findings import Finding, Status

OURS = frozenset({"policy-scheduler-devices"})
"""Admission policies of `deploy/`, which the scheduler's account passes."""
WRITTEN: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("pods/binding", "CREATE"): "where it refuses, pods are not bound",
        ("pods/status", "UPDATE"): "where it refuses, autoscalers and people do not see why pods wait",
    }
)
"""What the scheduler writes of every pod, as admission sees it (a patch is an UPDATE), and what a no leads to."""


class _Rule(msgspec.Struct, rename="camel"):
    api_groups: list[str] | None = None
    api_versions: list[str] | None = None
    operations: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None
    scope: str | None = None

    def sees(self, resource: str, operation: str) -> bool:
        """Return whether it matches an operation on a subresource of pods, of at least some pods."""
        plural, _, subresource = resource.partition("/")
        patterns = {resource, f"{plural}/*", f"*/{subresource}", "*/*"}  # "*" alone is without subresources
        return (
            not {"", "*"}.isdisjoint(self.api_groups or ())
            and not {"v1", "*"}.isdisjoint(self.api_versions or ())
            and not {operation, "*"}.isdisjoint(self.operations or ())
            and not patterns.isdisjoint(self.resources or ())
            and self.scope in (None, "", "*", "Namespaced")
        )


class _Condition(msgspec.Struct):
    expression: str = ""


class _Webhook(msgspec.Struct, rename="camel"):
    name: str = ""
    rules: list[_Rule] | None = None
    failure_policy: str = "Fail"
    timeout_seconds: int = 10
    match_conditions: list[_Condition] | None = None
    namespace_selector: dict[str, Any] | None = None
    object_selector: dict[str, Any] | None = None


class _WebhookConfiguration(msgspec.Struct):
    metadata: ObjectMeta
    webhooks: list[_Webhook] | None = None


class _Match(msgspec.Struct, rename="camel"):
    resource_rules: list[_Rule] | None = None
    exclude_resource_rules: list[_Rule] | None = None
    namespace_selector: dict[str, Any] | None = None
    object_selector: dict[str, Any] | None = None


class _PolicySpec(msgspec.Struct, rename="camel"):
    match_constraints: _Match | None = None
    match_conditions: list[_Condition] | None = None
    failure_policy: str = "Fail"


class _Policy(msgspec.Struct):
    metadata: ObjectMeta
    spec: _PolicySpec


class _BindingSpec(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    validation_actions: list[str] | None = None
    match_resources: _Match | None = None


class _Binding(msgspec.Struct):
    metadata: ObjectMeta
    spec: _BindingSpec


@dataclass(frozen=True, slots=True)
class AdmissionConfiguration:
    """The objects of a cluster, as JSON."""

    mutating: Sequence[Any] = ()
    """MutatingWebhookConfigurations."""
    validating: Sequence[Any] = ()
    """ValidatingWebhookConfigurations."""
    policies: Sequence[Any] = ()
    """ValidatingAdmissionPolicies."""
    bindings: Sequence[Any] = ()
    """ValidatingAdmissionPolicyBindings."""
    mutating_policies: Sequence[Any] = ()
    """MutatingAdmissionPolicies."""
    mutating_bindings: Sequence[Any] = ()
    """MutatingAdmissionPolicyBindings."""


@dataclass(frozen=True, slots=True)
class _Seer:
    what: str
    resources: tuple[str, ...]
    fails_closed: bool
    is_conditional: bool
    """Whether a condition asks who sends a request."""
    detail: str


def admission_findings(found: AdmissionConfiguration | str | None) -> Iterator[Finding]:
    """Look at who may refuse what the scheduler writes; a text: why that is not known, None: nobody was asked."""
    if found is None:
        return
    names = " and ".join(dict.fromkeys(resource for resource, _ in WRITTEN))
    if isinstance(found, str):
        yield Finding("admission", names, Status.UNCHECKED, f"whether webhooks or policies see them: {found}")
        return
    try:
        seers = [
            *_webhooks("mutating", found.mutating),
            *_webhooks("validating", found.validating),
            *_policies("mutating admission policy", found.mutating_policies, found.mutating_bindings),
            *_policies("admission policy", found.policies, (each for each in found.bindings if _denies(each))),
        ]
    except msgspec.ValidationError as error:
        yield Finding("admission", names, Status.UNCHECKED, f"a webhook configuration cannot be read: {error}")
        return
    for seer in seers:
        yield _finding(seer)
    if not seers:
        yield Finding("admission", names, Status.OK, "no admission webhook or policy sees what the scheduler writes")


def _finding(seer: _Seer) -> Finding:
    text = f"sees {' and '.join(seer.resources)}{seer.detail}"
    if seer.is_conditional:
        return Finding("admission", seer.what, Status.OK, f"{text}; its match conditions ask who writes")
    effects = [effect for (resource, _), effect in WRITTEN.items() if resource in seer.resources]
    closed = "; a webhook that does not answer counts as a no" if seer.fails_closed else ""
    advice = (
        "leave these subresources out of its rules, or exempt the service account of the scheduler by a match condition"
        " on request.userInfo.username"
    )
    return Finding("admission", seer.what, Status.WARNING, f"{text}: {'; '.join(effects)}{closed}", advice=advice)


def _webhooks(kind: str, configurations: Iterable[Any]) -> Iterator[_Seer]:
    for configuration in msgspec.convert(list(configurations), list[_WebhookConfiguration]):
        for webhook in configuration.webhooks or ():
            seen = _seen(webhook.rules)
            if not seen:
                continue
            detail = f" within {webhook.timeout_seconds} s (failurePolicy {webhook.failure_policy})"
            yield _Seer(
                f"{kind} webhook {webhook.name} of {configuration.metadata.name}",
                seen,
                webhook.failure_policy != "Ignore",
                _asks_who(webhook.match_conditions),
                detail + _narrowed(webhook.namespace_selector, webhook.object_selector),
            )


def _policies(kind: str, policies: Iterable[Any], bindings: Iterable[Any]) -> Iterator[_Seer]:
    specs = {each.metadata.name: each.spec for each in msgspec.convert(list(policies), list[_Policy])}
    for binding in msgspec.convert(list(bindings), list[_Binding]):
        name, policy = binding.spec.policy_name, specs.get(binding.spec.policy_name)
        if policy is None or name in OURS:
            continue
        match, narrower = policy.match_constraints or _Match(), binding.spec.match_resources or _Match()
        seen = [resource for resource in _seen(match.resource_rules) if not _is_excluded(resource, match, narrower)]
        if narrower.resource_rules:
            seen = [resource for resource in seen if resource in _seen(narrower.resource_rules)]
        if seen:
            selectors = [match.namespace_selector, match.object_selector]
            selectors += [narrower.namespace_selector, narrower.object_selector]
            yield _Seer(
                f"{kind} {name} (binding {binding.metadata.name})",
                tuple(seen),
                False,
                _asks_who(policy.match_conditions),
                _narrowed(*selectors),
            )


def _denies(binding: Any) -> bool:
    """Return whether a binding of a validating policy does more than warn; a mutating one refuses what it fails at."""
    return "Deny" in (msgspec.convert(binding, _Binding).spec.validation_actions or ())


def _seen(rules: Iterable[_Rule] | None) -> tuple[str, ...]:
    return tuple(resource for resource, verb in WRITTEN if any(rule.sees(resource, verb) for rule in rules or ()))


def _is_excluded(resource: str, *matches: _Match) -> bool:
    return any(
        not rule.resource_names and resource in _seen([rule])
        for match in matches
        for rule in match.exclude_resource_rules or ()
    )


def _asks_who(conditions: Iterable[_Condition] | None) -> bool:
    return any("userInfo" in condition.expression for condition in conditions or ())


def _narrowed(*selectors: Mapping[str, Any] | None) -> str:
    return ", of pods or namespaces that its selectors match" if any(selectors) else ""
