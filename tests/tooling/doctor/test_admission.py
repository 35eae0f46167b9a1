"""Admission webhooks and policies that can refuse what the scheduler writes are named, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from kube_policy_scheduler.tooling.doctor.admission import AdmissionConfiguration, admission_findings
from kube_policy_scheduler.tooling.doctor.findings import Status

Json = dict[str, Any]


def rule(*resources: str, operations: tuple[str, ...] = ("*",), group: str = "", **more: Any) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": list(operations),
        "resources": list(resources),
        **more,
    }


def webhooks(*rules: Json, **more: Any) -> list[Json]:
    return [{"metadata": {"name": "kyverno"}, "webhooks": [{"name": "w.example", "rules": list(rules), **more}]}]


def policy(*rules: Json, **spec: Any) -> list[Json]:
    return [{"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": list(rules)}, **spec}}]


def binding(actions: tuple[str, ...] = ("Deny",), **spec: Any) -> list[Json]:
    return [{"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": list(actions)} | spec}]


def found(**configuration: Any) -> list[tuple[str, str, str]]:
    findings = admission_findings(AdmissionConfiguration(**configuration))
    return [(one.subject, one.status.value, one.text) for one in findings]


NOTHING = [("pods/binding and pods/status", "ok", "no admission webhook or policy sees what the scheduler writes")]


@pytest.mark.parametrize(
    ("given", "sees"),
    [
        (rule("pods/status"), "pods/status"),
        (rule("pods/status", operations=("UPDATE",)), "pods/status"),
        (rule("pods/status", operations=("CREATE",)), ""),
        (rule("pods/binding", operations=("CREATE",)), "pods/binding"),
        (rule("pods/binding", operations=("UPDATE",)), ""),
        (rule("pods/*"), "pods/binding and pods/status"),
        (rule("*/*", group="*", scope="*"), "pods/binding and pods/status"),
        (rule("*/status", scope="Namespaced"), "pods/status"),
        (rule("*/*", scope="Cluster"), ""),
        (rule("*"), ""),
        (rule("pods"), ""),
        (rule("pods/eviction"), ""),
        (rule("pods/*", group="apps"), ""),
        (rule("pods/*", apiVersions=["v2"]), ""),
    ],
)
def test_a_rule_sees_a_subresource_or_not(given: Json, sees: str) -> None:
    for kind in ("mutating", "validating"):
        told = found(**{kind: webhooks(given)})
        if not sees:
            assert told == NOTHING
            continue
        ((subject, status, text),) = told
        assert (subject, status) == (f"{kind} webhook w.example of kyverno", "warning")
        assert text.startswith(f"sees {sees} within 10 s (failurePolicy Fail): where it refuses, ")
        assert text.endswith("; a webhook that does not answer counts as a no")
        assert ("pods are not bound" in text) == ("binding" in sees)
        assert ("autoscalers" in text) == ("status" in sees)
    told = found(policies=policy(given), bindings=binding())
    assert (told == NOTHING) == (not sees)
    if sees:
        assert told[0][0] == "admission policy p (binding b)"
        assert told[0][2].startswith(f"sees {sees}: ")
    unconditional = [{"metadata": {"name": "b"}, "spec": {"policyName": "p"}}]
    mutating = found(mutating_policies=policy(given), mutating_bindings=unconditional)
    assert [name for name, _, _ in mutating] == (
        ["mutating admission policy p (binding b)"] if sees else [NOTHING[0][0]]
    )


def test_what_narrows_a_webhook_is_told() -> None:
    ((_, status, text),) = found(
        validating=webhooks(
            rule("pods/status"), failurePolicy="Ignore", timeoutSeconds=3, namespaceSelector={"matchLabels": {"a": "b"}}
        )
    )
    assert status == "warning"
    assert text == (
        "sees pods/status within 3 s (failurePolicy Ignore), of pods or namespaces that its selectors match: where it"
        " refuses, autoscalers and people do not see why pods wait"
    )
    conditions = [{"name": "n", "expression": "request.userInfo.username != 'system:serviceaccount:s:s'"}]
    ((_, status, text),) = found(validating=webhooks(rule("pods/status"), matchConditions=conditions))
    assert status == "ok"
    assert text.endswith("; its match conditions ask who writes")


@pytest.mark.parametrize(
    "configuration",
    [
        {"policies": policy(rule("pods/*"))},
        {"policies": policy(rule("pods/*")), "bindings": binding(("Warn", "Audit"))},
        {"policies": policy(rule("pods/*")), "bindings": binding(matchResources={"resourceRules": [rule("pods")]})},
        {
            "policies": policy(rule("pods/*")),
            "bindings": binding(matchResources={"excludeResourceRules": [rule("pods/status", "pods/binding")]}),
        },
        {"bindings": binding()},
        {
            "policies": [{**policy(rule("pods/*"))[0], "metadata": {"name": "policy-scheduler-devices"}}],
            "bindings": [
                {
                    "metadata": {"name": "b"},
                    "spec": {"policyName": "policy-scheduler-devices", "validationActions": ["Deny"]},
                }
            ],
        },
        {"validating": [{"metadata": {"name": "empty"}, "webhooks": None}]},
    ],
)
def test_a_policy_that_is_not_bound_or_denies_nothing_refuses_nothing(configuration: Json) -> None:
    assert found(**configuration) == NOTHING


def test_what_could_not_be_asked_is_not_taken_for_well() -> None:
    (one,) = admission_findings("403 Forbidden: no")
    assert (one.status, one.text) == (Status.UNCHECKED, "whether webhooks or policies see them: 403 Forbidden: no")
    (one,) = admission_findings(AdmissionConfiguration(validating=[{"metadata": {"name": 7}}]))
    assert one.status is Status.UNCHECKED
    assert "cannot be read" in one.text
    assert list(admission_findings(None)) == []
