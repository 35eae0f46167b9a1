"""All rules over a set of policies, with what the policies ask to be ignored."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Severity, in_order
from kube_policy_scheduler.lang import codes
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.codes import Code, codes_in
from kube_policy_scheduler.lang.load import Checked
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.lint import rules as rules_package
from kube_policy_scheduler.lint import suppressions
from kube_policy_scheduler.lint.rule import Rule


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Return all rules, by code."""
    found: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(rules_package.__path__):
        for value in vars(importlib.import_module(f"{rules_package.__name__}.{module.name}")).values():
            if isinstance(value, Rule) and found.setdefault(value.code.id, value) is not value:
                raise ValueError(f"two rules have the code {value.code.id}")
    return tuple(found[id_] for id_ in sorted(found))


@lru_cache(maxsize=1)
def all_codes() -> Mapping[str, Code]:
    """Return every code of the language and of the rules, by id."""
    found = {rule.code.id: rule.code for rule in rules()} | codes_in(codes) | codes_in(suppressions)
    return MappingProxyType(dict(sorted(found.items())))


def lint(
    checked: Checked,
    *,
    select: Iterable[str] | None = None,
    memo: Memo | None = None,
    go_on: Callable[[], None] = lambda: None,
) -> tuple[Diagnostic, ...]:
    """Return what the rules have to say, with what is ignored left out.

    Most rules look at what policies mean; where `checked` has errors, only those speak that look at what is written.
    A warning about a file that policies take in with `use` is given where it is true in each of them.

    Args:
        checked: policies, checked together.
        select: codes of the rules to run; all of them where not given. Suppressions are then not judged.
        memo: results for the same policies, and those of this time afterwards.
        go_on: called between rules; raises where nobody wants the findings any more.
    """
    memo = memo or Memo()
    chosen = frozenset(select) if select is not None else None
    asked = tuple(_asked(chosen, checked.failed))

    def about(policy: CheckedPolicy) -> Iterator[Diagnostic]:
        for rule in asked:
            go_on()
            yield from memo(_about, rule, policy)

    found = list(_true_for_all([(policy, tuple(about(policy))) for policy in checked.policies], checked))
    found += [d for rule in asked for d in rule.about_set(checked)]
    return in_order(
        suppressions.apply(found, checked.files, known=all_codes(), judge=chosen is None and not checked.failed)
    )


def lint_together(parts: Sequence[Checked]) -> tuple[Diagnostic, ...]:
    """Return what the rules have to say of policies of several owners beside each other, and not of one owner's alone.

    parts: the policies of each, without errors.
    """
    union = Checked(tuple(policy for part in parts for policy in part.policies), (), ())
    alone = {(d.code, d.span) for part in parts for rule in rules() for d in rule.about_set(part)}
    found = (d for rule in rules() for d in rule.about_set(union))
    return in_order([d for d in found if (d.code, d.span) not in alone])


def _about(rule: Rule, policy: CheckedPolicy) -> tuple[Diagnostic, ...]:
    return tuple(rule.about_policy(policy))


def _true_for_all(
    about: Sequence[tuple[CheckedPolicy, tuple[Diagnostic, ...]]], checked: Checked
) -> Iterator[Diagnostic]:
    """Yield what is said of each policy; of a file that it takes in, only what is true for all that take it in.

    An error is an error though it is one in a single policy: then it says in which. A file that is not among those
    checked may have other users, so warnings about it are left out.
    """
    if not any(d.span.source != policy.source for policy, diagnostics in about for d in diagnostics):
        return (yield from (d for _, diagnostics in about for d in diagnostics))
    users = Counter(source for policy, _ in about for source in {s.span.source for s in policy.statements})
    said = Counter(place for _, diagnostics in about for place in {(d.code, d.span) for d in diagnostics})
    given = {file.source for file in checked.files}
    for policy, diagnostics in about:
        for diagnostic in diagnostics:
            source = diagnostic.span.source
            everywhere = said[diagnostic.code, diagnostic.span] == users[source] and source in given
            if source == policy.source or everywhere:
                yield diagnostic
            elif diagnostic.severity is Severity.ERROR:
                note = f"this is so in policy `{policy.name}`, which includes the file with `use`"
                yield msgspec.structs.replace(diagnostic, notes=(*diagnostic.notes, note))


def _asked(chosen: frozenset[str] | None, failed: bool) -> Iterator[Rule]:
    for rule in rules():
        if (chosen is None or rule.code.id in chosen) and (rule.syntactic or not failed):
            yield rule
