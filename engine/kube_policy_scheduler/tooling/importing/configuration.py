"""A KubeSchedulerConfiguration as people write it: what of it bears on where pods go. Translates nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.codes import WRONG_VALUE
from kube_policy_scheduler.documents.schema import EXPECTED, DocumentSchema
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError
from kube_policy_scheduler.framework.default_profile import kube_scheduler_filters, kubernetes_scores
from kube_policy_scheduler.lang.reading.literals import OBJECT_NAME
from kube_policy_scheduler.tooling.importing.settings import request_limits

GROUP = "kubescheduler.config.k8s.io"
VERSIONS = ("v1", "v1beta3")
KIND = "KubeSchedulerConfiguration"
DEFAULT_SCHEDULER = "default-scheduler"

DEFAULT_SCORES: Mapping[str, int] = {score.plugin.name: int(score.weight) for score in kubernetes_scores()}
"""Weights of the default profile: getDefaultPlugins of kube-scheduler."""
DEFAULT_FILTERS = kube_scheduler_filters()
DEFAULT_POST_FILTERS = ("DynamicResources", "DefaultPreemption")
OTHER_DEFAULTS = ("PrioritySort", "DefaultBinder", "SchedulingGates")

_PLUGIN = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, EXPECTED: "the name of a plugin"},
        "weight": {"type": ["integer", "null"], "minimum": 0, EXPECTED: "a whole number from 0"},
    },
}
_PLUGIN_SET = {
    "type": ["object", "null"],
    "properties": {side: {"type": ["array", "null"], "items": _PLUGIN} for side in ("enabled", "disabled")},
}
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["apiVersion", "kind"],
    "properties": {
        "apiVersion": {"enum": [f"{GROUP}/{version}" for version in VERSIONS]},
        "kind": {"enum": [KIND]},
        "percentageOfNodesToScore": {"type": ["integer", "null"]},
        "extenders": {"type": ["array", "null"], "items": {"type": "object"}},
        "clientConnection": {
            "type": ["object", "null"],
            "properties": {
                "qps": {"type": ["number", "null"], EXPECTED: "a number of requests per second"},
                "burst": {"type": ["integer", "null"], EXPECTED: "a number of requests"},
            },
        },
        "profiles": {
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "properties": {
                    "schedulerName": {"type": ["string", "null"], "minLength": 1, EXPECTED: "a scheduler's name"},
                    "percentageOfNodesToScore": {"type": ["integer", "null"]},
                    "plugins": {"type": ["object", "null"], "additionalProperties": _PLUGIN_SET},
                    "pluginConfig": {
                        "type": ["array", "null"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": {"type": "string", "minLength": 1, EXPECTED: "the name of a plugin"},
                                "args": {"type": ["object", "null"]},
                            },
                        },
                    },
                },
            },
        },
    },
}
_EXTENSION_POINTS = (
    "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit",
    "preBind", "bind", "postBind", "multiPoint", "placementGenerate", "placementScore", "podGroupPostFilter",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImportedProfile:
    """One profile: which plugins decide, and how they are set."""

    scheduler: str
    scores: Mapping[str, int]
    """Weights, in the order in which the plugins are asked."""
    filters: tuple[str, ...]
    post_filters: tuple[str, ...]
    arguments: Mapping[str, Mapping[str, Any]]


def read_profiles(document: Document) -> tuple[ImportedProfile, ...]:
    """Return the profiles of a KubeSchedulerConfiguration; without any, kube-scheduler's default one.

    Raises:
        DocumentError: it is none, or says what kube-scheduler would refuse.
    """
    found = DocumentSchema(_SCHEMA).check(document)
    if found:
        raise DocumentError(found)
    written = list(document.value.get("profiles") or ({},))
    if problems := [*_problems(document, written)]:
        raise DocumentError(problems)
    return tuple(_profile(profile) for profile in written)


def global_notes(document: Document, *, with_settings: bool) -> Iterator[str]:
    """Say what the configuration holds beside its profiles that policies do otherwise.

    with_settings: whether settings are made of it, too.
    """
    value = document.value
    percentages = [value.get("percentageOfNodesToScore")]
    percentages += [profile.get("percentageOfNodesToScore") for profile in value.get("profiles") or ()]
    if any(percentage not in (None, 0, 100) for percentage in percentages):
        yield "percentageOfNodesToScore: not needed, because all nodes are evaluated for every pod"
    if with_settings:
        return
    if limits := request_limits(document):
        written = ", ".join(f"{key}: {limit:g}" for key, limit in limits.items())
        yield f"clientConnection: to limit requests as before, add `kubernetes: {{{written}}}` to config.yaml"
    for extender in value.get("extenders") or ():
        url = extender.get("urlPrefix", "")
        yield f"the extender {url} is called only if the settings name it; `--settings config.yaml` writes them"


def _problems(document: Document, profiles: list[Any]) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for index, profile in enumerate(profiles):
        name = profile.get("schedulerName") or DEFAULT_SCHEDULER
        if name in seen:
            message = f"two profiles have the schedulerName `{name}`"
            yield document.error(("profiles", index, "schedulerName"), WRONG_VALUE, message=message)
        seen.add(name)
        if not re.fullmatch(OBJECT_NAME, name):
            message = f"no policy can name the scheduler `{name}`: letters, digits and inside it `-`, `_` or `.`"
            yield document.error(("profiles", index, "schedulerName"), WRONG_VALUE, message=message)
        for point in profile.get("plugins") or {}:
            if point not in _EXTENSION_POINTS:
                message = f"unknown extension point `{point}`, expected one of {', '.join(_EXTENSION_POINTS)}"
                yield document.error(("profiles", index, "plugins", point), WRONG_VALUE, message=message, key=True)


def _profile(written: Mapping[str, Any]) -> ImportedProfile:
    plugins = written.get("plugins") or {}
    everywhere = plugins.get("multiPoint") or {}
    scores = _enabled(DEFAULT_SCORES, everywhere, plugins.get("score") or {}, scores=True)
    filters = _enabled(dict.fromkeys(DEFAULT_FILTERS, 0), everywhere, plugins.get("filter") or {}, scores=False)
    after = _enabled(dict.fromkeys(DEFAULT_POST_FILTERS, 0), everywhere, plugins.get("postFilter") or {}, scores=False)
    return ImportedProfile(
        scheduler=written.get("schedulerName") or DEFAULT_SCHEDULER,
        scores=scores,
        filters=tuple(filters),
        post_filters=tuple(after),
        arguments={each["name"]: each.get("args") or {} for each in written.get("pluginConfig") or ()},
    )


def _enabled(
    defaults: Mapping[str, int], everywhere: Mapping[str, Any], here: Mapping[str, Any], *, scores: bool
) -> dict[str, int]:
    """Return the plugins of an extension point: what it says itself goes before `multiPoint`, that before defaults.

    A plugin that is enabled in multiPoint and is no default stands in every extension point that it implements; of
    plugins that are not kube-scheduler's own only the scores are known here.
    """
    off = {each["name"] for each in everywhere.get("disabled") or ()}
    found = {} if "*" in off else {name: weight for name, weight in defaults.items() if name not in off}
    for each in everywhere.get("enabled") or ():
        name = each["name"]
        if name in defaults or (scores and not _is_default_elsewhere(name)):
            found[name] = each.get("weight") or defaults.get(name, 1)
    off = {each["name"] for each in here.get("disabled") or ()}
    found = {} if "*" in off else {name: weight for name, weight in found.items() if name not in off}
    for each in here.get("enabled") or ():
        found[each["name"]] = each.get("weight") or found.get(each["name"], 1)
    return found


def _is_default_elsewhere(name: str) -> bool:
    return name in DEFAULT_FILTERS or name in DEFAULT_POST_FILTERS or name in OTHER_DEFAULTS
