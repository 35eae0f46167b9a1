"""Permissions that no role may grant.

That each permission is used, and none is missing, `tests/integration/test_permissions.py` shows by using them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.manifests import Json, objects


def rules(kind: str) -> Iterator[Json]:
    for found in objects():
        if found["kind"] == kind:
            yield from (rule for rule in found["rules"] if "nonResourceURLs" not in rule)


def allowed(kind: str = "ClusterRole") -> set[tuple[str, str, str]]:
    """Return every (group, resource, verb) that is not limited to names."""
    return {
        (group, resource, verb)
        for rule in rules(kind)
        if "resourceNames" not in rule
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_what_is_written_is_this_and_no_more() -> None:
    """A longer list than this wants a reason, and a look at what a stolen token could do with it."""
    written = {(g, r, v) for g, r, v in allowed() if v not in ("get", "list", "watch")}
    assert written == {
        ("", "pods", "delete"),
        ("", "pods/binding", "create"),
        ("", "pods/status", "patch"),
        ("scheduling.k8s.io", "podgroups/status", "patch"),
        ("scheduling.k8s.io", "compositepodgroups/status", "patch"),
        ("", "persistentvolumeclaims", "patch"),
        ("", "persistentvolumes", "patch"),
        # claims for devices: a stolen token can take devices away from claims, and delete claims
        ("resource.k8s.io", "resourceclaims", "create"),
        ("resource.k8s.io", "resourceclaims", "update"),
        ("resource.k8s.io", "resourceclaims", "patch"),
        ("resource.k8s.io", "resourceclaims", "delete"),
        ("resource.k8s.io", "resourceclaims/status", "patch"),
        ("resource.k8s.io", "resourceclaims/binding", "patch"),
        ("events.k8s.io", "events", "create"),
        ("events.k8s.io", "events", "patch"),
        ("policy-scheduler.dev", "deviceannotations", "write"),
        # questions, about who looks at the port
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }


def test_what_is_written_at_home_is_this_and_no_more() -> None:
    assert {each for each in allowed("Role") if each[2] not in ("get", "list", "watch")} == {
        ("coordination.k8s.io", "leases", "create"),
        ("apps", "controllerrevisions", "create"),
        ("apps", "controllerrevisions", "delete"),
    }


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_no_wildcard_and_no_secret(kind: str) -> None:
    for rule in rules(kind):
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert "secrets" not in rule["resources"]
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_the_only_config_map_that_can_be_read_is_its_own_policies() -> None:
    assert not any("configmaps" in rule["resources"] for rule in rules("ClusterRole"))
    mine = [rule for rule in rules("Role") if "configmaps" in rule["resources"]]
    assert [(rule["resourceNames"], rule["verbs"]) for rule in mine] == [(["policies"], ["get"])]


def test_the_only_leases_that_can_be_changed_are_its_own() -> None:
    assert {each for each in allowed("Role") if each[1] == "leases"} == {("coordination.k8s.io", "leases", "create")}
    mine = [rule for rule in rules("Role") if "leases" in rule["resources"] and "resourceNames" in rule]
    names = ["policy-scheduler", "policy-scheduler-queues", "policy-scheduler-status"]
    assert sorted(rule["resourceNames"] for rule in mine) == [[name] for name in names]
