"""By which Kubernetes pods are decided: versions, their features, and gates that administrators switch."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.kubernetes_rules import (
    DEFAULT_RULES,
    NEWEST,
    OLDEST,
    Feature,
    KubernetesChoice,
    KubernetesRules,
    KubernetesVersion,
    VersionError,
    parse_gates,
)
from tests.test_architecture import ENGINE

RULES = {minor: KubernetesRules(KubernetesVersion(minor)) for minor in range(OLDEST - 3, NEWEST + 4)}


def rules_of(text: str, **gates: bool) -> KubernetesRules:
    return KubernetesRules(KubernetesVersion.parse(text), gates)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.37", KubernetesVersion(37)),
        ("v1.36.4", KubernetesVersion(36, 4)),
        ("v1.36.4-eks-1a2b", KubernetesVersion(36, 4)),
        ("1.38.0-alpha.1", KubernetesVersion(38, 0)),
        ("v1.34.1+k3s1", KubernetesVersion(34, 1)),
        ("v1.33+", KubernetesVersion(33)),
    ],
)
def test_versions_are_read_as_servers_write_them(text: str, version: KubernetesVersion) -> None:
    assert KubernetesVersion.parse(text) == version


@pytest.mark.parametrize("text", ["", "37", "2.0", "1", "1.x", "1.37.", "1.37.1.2", "1.123456", "latest", "x1.37"])
def test_what_is_no_version_is_an_error_that_says_what_is_expected(text: str) -> None:
    with pytest.raises(VersionError, match=r"expected a version of Kubernetes such as 1\.37"):
        KubernetesVersion.parse(text)


@pytest.mark.parametrize("feature", Feature)
def test_what_holds_in_a_version_holds_in_all_later_ones(feature: Feature) -> None:
    holds = [feature in RULES[minor] for minor in sorted(RULES)]

    assert holds == sorted(holds)


def test_servers_beyond_the_known_versions_get_the_nearest_rules_and_it_is_said() -> None:
    assert rules_of("1.30.2") == rules_of(f"1.{OLDEST}")
    assert rules_of("1.99.1") == rules_of(f"1.{NEWEST}")
    assert str(rules_of("1.99.1")) == f"1.{NEWEST} (the newest whose rules are known, for 1.99.1)"
    assert str(rules_of("1.30.2")) == f"1.{OLDEST} (the oldest whose rules are known, for 1.30.2)"
    assert str(rules_of("v1.37.1")) == "1.37.1"


def test_gates_are_switched_by_their_names() -> None:
    name = Feature.STORAGE_CAPACITY_SCORING.entry.name

    assert Feature.STORAGE_CAPACITY_SCORING not in rules_of("1.37", **{name: False})
    assert Feature.STORAGE_CAPACITY_SCORING in rules_of("1.36", **{name: True})
    assert str(rules_of("1.37", **{name: False})) == "1.37, StorageCapacityScoring=false"


@pytest.mark.parametrize(
    ("version", "gate", "error"),
    [
        ("1.37", "NoSuchGate", "unknown feature gate `NoSuchGate`: the gates that change what is decided are "),
        ("1.37", Feature.PREEMPTION_MESSAGE.entry.name, "unknown feature gate"),
        ("1.34", Feature.VOLUME_LIMIT_SCALING.entry.name, "does not exist in Kubernetes 1.34: leave it out"),
    ],
)
def test_gates_that_cannot_be_switched_are_errors(version: str, gate: str, error: str) -> None:
    with pytest.raises(VersionError, match=re.escape(error)):
        rules_of(version, **{gate: True})


@given(st.integers(OLDEST, NEWEST), st.integers(0, 20), st.data())
def test_switching_a_gate_changes_nothing_else(minor: int, patch: int, data: st.DataObject) -> None:
    version = KubernetesVersion(minor, patch)
    plain = KubernetesRules(version)
    gates = [feature for feature in Feature if feature.entry.is_switchable(version)]
    feature, is_on = data.draw(st.sampled_from(gates)), data.draw(st.booleans())
    switched = KubernetesRules(version, {feature.entry.name: is_on})

    assert {each for each in Feature if (each in plain) is not (each in switched)} <= {feature}
    assert (feature in switched) is is_on
    assert (switched == plain) is ((feature in plain) is is_on)


@given(st.integers(OLDEST - 3, NEWEST + 3), st.none() | st.integers(0, 20), st.data())
def test_rules_are_written_such_that_they_can_be_read_again(minor: int, patch: int | None, data: st.DataObject) -> None:
    version = KubernetesVersion(minor, patch)
    plain = KubernetesRules(version)
    gates = [each.entry.name for each in Feature if plain.may_switch(each.entry.name)]
    rules = KubernetesRules(version, data.draw(st.dictionaries(st.sampled_from(gates), st.booleans())))

    read = KubernetesRules.parse(rules.said)

    assert (read, read.version, dict(read.switched)) == (rules, rules.version, dict(rules.switched))


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        ("StorageCapacityScoring=true", {"StorageCapacityScoring": True}),
        (
            "StorageCapacityScoring=true, VolumeLimitScaling=false",
            {"StorageCapacityScoring": True, "VolumeLimitScaling": False},
        ),
        ("VolumeLimitScaling=false,VolumeLimitScaling=false", {"VolumeLimitScaling": False}),
    ],
)
def test_gates_are_read_as_kube_scheduler_reads_them(text: str, gates: dict[str, bool]) -> None:
    assert parse_gates(text) == gates


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "expected a feature gate such as StorageCapacityScoring=true, got ``"),
        ("StorageCapacityScoring", "got `StorageCapacityScoring`"),
        ("StorageCapacityScoring=on", "got `StorageCapacityScoring=on`"),
        ("VolumeLimitScaling=true,", "got ``"),
        ("NoSuchGate=true", "unknown feature gate `NoSuchGate`"),
        ("VolumeLimitScaling=true,VolumeLimitScaling=false", "`VolumeLimitScaling` is both true and false"),
    ],
)
def test_gates_that_cannot_be_read_are_errors(text: str, error: str) -> None:
    with pytest.raises(VersionError, match=re.escape(error)):
        parse_gates(text)


def test_what_somebody_says_has_priority_over_what_is_recorded() -> None:
    recorded = rules_of("1.37.1", VolumeLimitScaling=False)
    gates = {"StorageCapacityScoring": False}

    def chosen(*said: KubernetesVersion | dict[str, bool]) -> str:
        version = next((each for each in said if isinstance(each, KubernetesVersion)), None)
        choice = KubernetesChoice(version, next((each for each in said if isinstance(each, dict)), {}))
        return choice.rules(lambda: recorded).said

    assert chosen() == recorded.said
    assert chosen(KubernetesVersion(38)) == "1.38"
    assert chosen(KubernetesVersion(38), gates) == "1.38,StorageCapacityScoring=false"
    assert chosen(gates) == "1.37.1,StorageCapacityScoring=false,VolumeLimitScaling=false"
    assert chosen({"VolumeLimitScaling": True}) == "1.37.1,VolumeLimitScaling=true"


def test_the_default_is_a_known_version_without_a_patch() -> None:
    assert DEFAULT_RULES.is_known
    assert DEFAULT_RULES.version.patch is None


@pytest.mark.parametrize("feature", Feature)
def test_every_feature_of_the_table_is_asked_for_somewhere(feature: Feature) -> None:
    table = ENGINE / "kubernetes_rules.py"
    asked = re.compile(rf"\bFeature\.{feature.name}\b")

    assert any(asked.search(path.read_text()) for path in ENGINE.rglob("*.py") if path != table)


def test_only_the_table_compares_versions() -> None:
    compared = re.compile(r"rules\.(version|followed)\.(minor|patch)\b")
    found = {path.name for path in ENGINE.rglob("*.py") if compared.search(path.read_text())}

    assert found <= {"kubernetes_rules.py"}
