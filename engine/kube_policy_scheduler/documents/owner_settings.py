"""Owners of policies in the scheduler's configuration: how they are written, for the scheduler and for `policyctl`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, TypeAlias

from msgspec import Meta

from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.codes import MISSING_KEY, WRONG_VALUE
from kube_policy_scheduler.documents.schema import DocumentSchema
from kube_policy_scheduler.documents.shape import EACH_ONCE, Name, Section, build, expected, schema_of
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_document, read_source
from kube_policy_scheduler.lang.owner import ALLOWED_BY_DEFAULT, Owner, Restrictable, SetLimits

MAX_OWNERS = 100

NamespacePattern: TypeAlias = Annotated[
    str,
    Meta(pattern=r"^[a-z0-9*]([-a-z0-9*]{0,61}[a-z0-9*])?$"),
    expected("the name of a namespace, in which * stands for any characters"),
]
NamespaceName: TypeAlias = Annotated[
    str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"), expected("the name of a namespace")
]


class OwnerSettings(Section, frozen=True, kw_only=True):
    """One owner of policies, and what the administrator allows: see deploy/OWNERS.md."""

    name: Annotated[
        str,
        Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"),
        expected("lower case letters, digits and -"),
    ]
    """Name of the owner. It comes before the names of the policies: `team-a/web`."""
    path: Path | None = None
    """A directory of `.policy` files, usually the volume of a ConfigMap, or one file. Set this, or
    `schedulingPolicies`."""
    scheduling_policies: NamespaceName | None = None
    """The namespace whose SchedulingPolicy objects are the policies: everybody who can write them there writes for the
    owner. Each namespace can belong to one owner."""
    config_map: str | None = None
    """`NAMESPACE/NAME` of the ConfigMap behind the path, for events, stored versions and `policyctl rollout`."""
    namespaces: Annotated[tuple[NamespacePattern, ...], Meta(min_length=1, max_length=100), EACH_ONCE]
    """Namespaces of the pods that the policies may govern. `team-a-*` means all that begin so, `*` all namespaces."""
    pods: Annotated[str, Meta(min_length=1, max_length=2000)] | None = None
    """A condition as after `for pods where`, such as `pod label tier=web`: the policies govern only pods that match it.
    None: all pods of the namespaces."""
    max_priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0
    """Highest `priority` that the policies may use."""
    statements: Annotated[tuple[Restrictable, ...], EACH_ONCE] = ALLOWED_BY_DEFAULT
    """Statements that the policies may use. Not among the defaults: `gang`, `preempt`, `rebalance`,
    `use kubernetes without`, and `promql` (metrics)."""
    scheduler_names: Annotated[tuple[Name, ...], EACH_ONCE] = ()
    """Names that the policies may serve with a `scheduler` line, beside the top-level `schedulerNames`."""


def check_owners(document: Document, owners: Sequence[OwnerSettings]) -> Iterator[Diagnostic]:
    """Yield what is wrong with the owners of a configuration, beside what its schema says."""
    names: set[str] = set()
    homes: set[str] = set()
    for at, owner in enumerate(owners):
        place = ("policies", "owners", at)
        if owner.name in names:
            message = f"two owners are called {owner.name}: give one of them another name"
            yield document.error((*place, "name"), WRONG_VALUE, message=message)
        names.add(owner.name)
        if (owner.path is None) == (owner.scheduling_policies is None):
            message = f"policies.owners[{at}] needs either `path` or `schedulingPolicies`"
            yield document.error(place, MISSING_KEY, message=message)
        if owner.scheduling_policies is not None:
            if owner.scheduling_policies in homes:
                message = f"two owners read the SchedulingPolicies of namespace {owner.scheduling_policies}"
                yield document.error((*place, "schedulingPolicies"), WRONG_VALUE, message=message)
            homes.add(owner.scheduling_policies)
        config_map = owner.config_map
        if config_map is not None and len([part for part in config_map.split("/") if part]) != 2:
            message = f"policies.owners[{at}].configMap: expected NAMESPACE/NAME, got {config_map}"
            yield document.error((*place, "configMap"), WRONG_VALUE, message=message)


def owner_of(settings: OwnerSettings, *, owners: int) -> Owner:
    """Return what the administrator allows an owner. owners: how many there are, as they share what all may use."""
    return Owner(
        name=settings.name,
        namespaces=settings.namespaces,
        pods=settings.pods or "",
        max_priority=settings.max_priority,
        allowed=frozenset(settings.statements),
        schedulers=frozenset(settings.scheduler_names),
        limits=SetLimits().share(owners),
    )


def scope_problems(
    document: Document, owners: Sequence[OwnerSettings], scope_problem: Callable[[Owner], Diagnostic | None]
) -> Iterator[Diagnostic]:
    """Yield what is wrong with the conditions of the owners' pods in a configuration.

    scope_problem: returns what the checker of policies says of one owner's condition.
    """
    for at, settings in enumerate(owners):
        bad = scope_problem(owner_of(settings, owners=len(owners))) if settings.pods is not None else None
        if bad is not None:
            message = f"policies.owners[{at}].pods is not a condition on pods: {bad.message}"
            yield document.error(("policies", "owners", at, "pods"), WRONG_VALUE, message=message, advice=bad.help)


class SharedSettings(Section, frozen=True):
    """What the scheduler's configuration says of policies that `policyctl` has to know, too."""

    path: Path | None = None
    extensions: Annotated[tuple[Name, ...], EACH_ONCE] = ()
    owners: Annotated[tuple[OwnerSettings, ...], Meta(max_length=MAX_OWNERS)] = ()


def read_shared(path: Path) -> tuple[Document, SharedSettings]:
    """Read a configuration file; its other settings are not looked at.

    Raises:
        DocumentError: it cannot be read, or the owners are not as they should be.
    """
    document = parse_document(read_source(path))
    found = _schema().check(document)
    if found:
        raise DocumentError(found)
    policies = document.value.get("policies") if isinstance(document.value, dict) else None
    known = {key: value for key, value in (policies or {}).items() if key in ("path", "extensions", "owners")}
    built = build(SharedSettings, known, folder=path.parent)
    problems = [*check_owners(document, built.owners)]
    if problems:
        raise DocumentError(problems)
    return document, built


@cache
def _schema() -> DocumentSchema:
    policies = schema_of(SharedSettings) | {"additionalProperties": True, "type": ["object", "null"]}
    return DocumentSchema({"type": "object", "properties": {"policies": policies}})
