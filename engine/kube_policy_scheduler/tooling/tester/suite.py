"""A test file as values: its cases, where everything stands in it, and what it wants from other files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeAlias

from kube_policy_scheduler.diagnostics import Source, closest
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.yaml_document import Document
from kube_policy_scheduler.documents.yaml_nodes import Step as PathStep
from kube_policy_scheduler.wording import some

Path: TypeAlias = tuple[PathStep, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the file: its value and where it stands."""

    value: Any
    path: Path


@dataclass(frozen=True, slots=True)
class Step:
    """Pods that are decided one after the other."""

    path: Path
    pod: Part | FixtureObject
    """A short form, templates resolved, or an object of another file."""
    count: int = 1
    every_seconds: float = 0.0
    """Time between two of them."""
    after_seconds: float = 0.0
    """Time before the first of them."""
    expect: Part | None = None
    """What must hold for each of them."""
    finished: Part | None = None
    """Names of pods that end before the first of them."""
    queued_seconds: float | None = None
    """Of a queue: how long it has waited; None: as the case says."""
    base: str = "pod"
    """What its pods are called, where they are several or the short form says no name."""


class Kind(Enum):
    """How the pods of a case are decided."""

    ONE = "one"
    SEQUENCE = "sequence"
    """One after the other: who has a place is there for the next."""
    QUEUE = "queue"
    """Not at all: they wait, and are asked for their turns."""
    FORALL = "forall"
    """Each by itself, in the same world."""


@dataclass(frozen=True, slots=True)
class Case:
    """Pods to decide, and what is expected of the decisions."""

    name: str
    path: Path
    steps: tuple[Step, ...]
    """One step with one pod, unless the case is a sequence."""
    expect: Part
    start: float
    """Unix seconds of the clock's zero: series begin there."""
    at_seconds: float
    """How long after `start` the decision is."""
    queued_seconds: float
    """How long the pod has waited."""
    attempts: int
    tie_ok: bool
    skip: str = ""
    """Why the case is left out, "" where it is not."""
    todo: str = ""
    """Why the case does not hold yet, "" where it must."""
    nodes: tuple[Part, ...] = ()
    """Laid over the file's nodes."""
    pods: tuple[Part, ...] = ()
    """Beside the file's pods."""
    metrics: Part | None = None
    kind: Kind = Kind.ONE
    only_schedulable: bool = False
    """Of a property: pods that fit nowhere are left out."""

    @property
    def now(self) -> float:
        """Return when the first decision is made, unix seconds."""
        return self.start + self.at_seconds


@dataclass(frozen=True, slots=True)
class Invalid:
    """A policy that must be refused, and for what."""

    name: str
    path: Path
    text: str | None
    """The policy itself; None: it is in `file`."""
    file: Part | None
    code: str
    """"": any error will do."""
    at: str
    """`LINE:COLUMN`, or `LINE`; "": anywhere."""
    message: str
    """A part of the message, or `/a regular expression/`."""
    skip: str = ""
    todo: str = ""


@dataclass(frozen=True, slots=True)
class ForAll:
    """A property that must hold for every pod of some files."""

    case: Case
    """Without steps."""
    files: tuple[Part, ...]
    """Files and folders of pods, as written."""
    templates: tuple[Step, ...]
    """The file's own templates that are meant."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One test file."""

    document: Document
    policies: tuple[Part, ...]
    """Paths as written."""
    clusters: tuple[Part, ...]
    """Paths as written."""
    nodes: tuple[Part, ...]
    pods: tuple[Part, ...]
    """Templates resolved."""
    metrics: Part
    seed: int
    cases: tuple[Case, ...]
    """Table cases are several."""
    invalid: tuple[Invalid, ...] = ()
    forall: tuple[ForAll, ...] = ()


@dataclass(frozen=True, slots=True)
class Fixtures:
    """What the files hold that a suite names. Keys are paths as they are written there."""

    cluster: tuple[FixtureObject, ...] = ()
    pods: Mapping[str, tuple[FixtureObject, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """For `forall`."""
    policies: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    """For `invalid`."""


def did_you_mean(word: str, known: Sequence[str], *, none: str = "") -> str:
    """Return advice for a word that is not among those known."""
    if not known:
        return none
    meant = closest(word, known)
    if meant is not None:
        return f"did you mean `{meant}`?"
    return f"known are: {some(sorted(known), limit=12)}"
