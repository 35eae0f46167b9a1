"""Profiles to policies: the text of each, and what could not be said in it. Knows no single plugin's arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.diagnostics import Diagnostic, Source
from kube_policy_scheduler.documents.codes import WRONG_VALUE
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError
from kube_policy_scheduler.documents.yaml_nodes import Step
from kube_policy_scheduler.framework.default_profile import kubernetes_filters
from kube_policy_scheduler.lang.formatting.format import Formatted, format_source
from kube_policy_scheduler.tooling.importing.configuration import (
    DEFAULT_FILTERS,
    DEFAULT_SCORES,
    ImportedProfile,
    global_notes,
    read_profiles,
)
from kube_policy_scheduler.tooling.importing.plugins import FILTERS, SCORES, Draft


@dataclass(frozen=True, slots=True)
class Imported:
    """One policy made of a profile."""

    name: str
    text: str
    notes: tuple[str, ...]
    """What the profile says and the policy does not, each a sentence for the one who imports."""


def import_configuration(document: Document, *, with_settings: bool = False) -> tuple[Imported, ...]:
    """Return a policy for each profile of a KubeSchedulerConfiguration.

    with_settings: whether settings are made of it, too (`import_settings`), so that no note is needed for them.

    Raises:
        DocumentError: it cannot be used.
    """
    profiles = read_profiles(document)
    common = tuple(global_notes(document, with_settings=with_settings))
    done = []
    for index, profile in enumerate(profiles):
        try:
            done.append(_import(profile, common))
        except _Unusable as error:
            raise DocumentError([_problem(document, index, error)]) from error
    return tuple(done)


class _Unusable(Exception):
    """A plugin's arguments are not what kube-scheduler accepts, or no policy can say what a profile says."""

    def __init__(self, plugin: str, problem: str) -> None:
        super().__init__(plugin, problem)
        self.plugin = plugin
        """Empty: the profile."""
        self.problem = problem


def _problem(document: Document, index: int, error: _Unusable) -> Diagnostic:
    path: tuple[Step, ...] = ("profiles", index)
    written: Any = (document.value.get("profiles") or ({},))[index]
    for at, each in enumerate(written.get("pluginConfig") or ()):
        if error.plugin and each["name"] == error.plugin:
            path = (*path, "pluginConfig", at, "args")
    return document.error(path, WRONG_VALUE, message=error.problem)


@contextmanager
def _of(plugin: str) -> Iterator[None]:
    """Say which plugin's arguments could not be read."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _Unusable(plugin, f"not the arguments that kube-scheduler accepts for {plugin}: {error}") from error


def _import(profile: ImportedProfile, common: tuple[str, ...]) -> Imported:
    notes = [*common]
    lines = [f"scheduler {profile.scheduler}", ""]
    ours = {type(plugin).__name__ for plugin in kubernetes_filters()}
    without = [name for name in DEFAULT_FILTERS if name not in profile.filters and name in ours]
    if without:
        lines.append(f"use kubernetes without {', '.join(without)}")
    notes += [
        f"the filter {name} is not a plugin of kube-scheduler; write its rules in the policy"
        for name in profile.filters
        if name not in DEFAULT_FILTERS
    ]
    lines += _filters(profile, notes)
    lines += _scores(profile, notes)
    if "DefaultPreemption" not in profile.post_filters:
        lines.append("preempt never")
    notes += [
        f"{name}: its arguments are not converted"
        for name in profile.arguments
        if name not in SCORES and name not in FILTERS and (name in profile.scores or name in profile.filters)
    ]
    # a name may hold the end of a line, and a note is a comment of one line
    notes = [" ".join(note.split()) for note in notes]
    text = "\n".join([*_header(notes), *lines]) + "\n"
    formatted = format_source(Source(f"{profile.scheduler}.policy", text))
    if not isinstance(formatted, Formatted):
        raise _Unusable("", "no policy can say this: a name or a number in it has a form that policies do not have")
    return Imported(profile.scheduler, formatted.text, tuple(notes))


def _header(notes: list[str]) -> list[str]:
    lines = ["# From a KubeSchedulerConfiguration."]
    if notes:
        lines += ["# Differences:", *(f"# - {note}" for note in notes)]
    return [*lines, ""]


def _filters(profile: ImportedProfile, notes: list[str]) -> list[str]:
    lines = []
    for name in profile.filters:
        if name in FILTERS and profile.arguments.get(name):
            draft = Draft()
            with _of(name):
                FILTERS[name](profile.arguments[name], 0, draft)
            lines += draft.lines
            notes += [f"{name}: {note}" for note in draft.notes]
    return lines


def _scores(profile: ImportedProfile, notes: list[str]) -> list[str]:
    """Return the scores, as one line where they are kube-scheduler's default ones."""
    drafts: dict[str, Draft] = {}
    for name, weight in profile.scores.items():
        draft = drafts[name] = Draft()
        translate = SCORES.get(name)
        if translate is None:
            draft.notes.append("this score has no equivalent; write its preferences in the policy")
        elif weight:
            with _of(name):
                translate(profile.arguments.get(name, {}), weight, draft)
    for name, draft in drafts.items():
        notes += [f"{name}: {note}" for note in draft.notes]
    defaults = {name for name in DEFAULT_SCORES if name in drafts and drafts[name].is_as_by_default}
    own = [line for name, draft in drafts.items() if name not in defaults for line in draft.lines]
    if len(defaults) > len(DEFAULT_SCORES) / 2:
        without = ", ".join(name for name in DEFAULT_SCORES if name not in defaults)
        weights = [(name, profile.scores[name]) for name in DEFAULT_SCORES if name in defaults]
        others = ", ".join(f"{name} weight {weight}" for name, weight in weights if weight != DEFAULT_SCORES[name])
        use = (
            "use kubernetes scores" + (f" without {without}" if without else "") + (f" with {others}" if others else "")
        )
        return [use, *own]
    lines = [line for draft in drafts.values() for line in draft.lines]
    return lines or ["score 0  # a profile without scores: nodes that fit are equal"]
