"""Policies together: which of them govern what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from kube_policy_scheduler.diagnostics import Edit, Fix, Label, Span, closest
from kube_policy_scheduler.lang import syntax, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind, Gang, Quota, WorkloadLimit
from kube_policy_scheduler.lang.checking.inference import constant_of
from kube_policy_scheduler.lang.language_versions import NEWEST
from kube_policy_scheduler.lang.load import Checked
from kube_policy_scheduler.lint.facts import Effort, Facts, always, assume, holding, known_of, never, nothing_of
from kube_policy_scheduler.lint.rule import Finding, presence, rule, set_rule

MAX_EFFORT = 300_000
"""Expressions that may be looked at to compare policies in pairs, at 3 µs each."""


def _place(policy: CheckedPolicy) -> Span:
    """Return where a policy says which pods it is for, or its first line."""
    for kind in (syntax.ForPods, syntax.PolicyName):
        found = next((s for s in policy.statements if isinstance(s, kind) and s.span.source == policy.source), None)
        if found is not None:
            return found.span
    if policy.statements:
        return policy.statements[0].span
    return Span(policy.source, 0, 0)


@lru_cache(maxsize=1)
def _compared(
    policies: tuple[CheckedPolicy, ...],
) -> tuple[list[CheckedPolicy], list[Facts | None], list[list[int]]]:
    """Return those that are no canaries, what is known of the pods of each, and which others each could meet."""
    stable = [policy for policy in policies if policy.canary is None]
    nothing = Facts(effort=Effort(MAX_EFFORT))
    facts = [holding(policy.governs, given=nothing) for policy in stable]
    return stable, facts, meeting(facts)


@set_rule("P0341")
def shadowed_policy(checked: Checked) -> Iterator[Finding]:
    """Another policy with a higher priority governs every pod that matches this policy, so this policy has no effect.

    Avoid::

        # in everything.policy
        priority 10
        filter node.ready
        # in batch.policy
        for pods where pod.namespace == "batch"
        filter node.ready and fits()

    Prefer::

        # in everything.policy
        filter node.ready
        # in batch.policy
        for pods where pod.namespace == "batch"
        priority 10
        filter node.ready and fits()
    """
    policies, facts, met = _compared(checked.policies)
    for lower, known, others in zip(policies, facts, met, strict=True):
        for upper in (policies[at] for at in others):
            if upper.scheduler != lower.scheduler or upper.priority <= lower.priority:
                continue
            if upper.subject is not lower.subject:
                continue
            if upper.governs is None or known is None or always(upper.governs, known):
                message = f"policy `{lower.name}` has no effect: `{upper.name}` governs all of its {lower.subject.name}"
                label = Label(_place(upper), f"priority {upper.priority}")
                yield Finding(_place(lower), message, f"give `{lower.name}` a higher priority", (label,))
                break


_MOST_RIVALS = 10
"""Rivals of a policy that are counted: counting all would take the square of the number of policies if all overlap."""


@set_rule("P0342")
def undecided_overlap(checked: Checked) -> Iterator[Finding]:
    """Two policies of one scheduler can match the same pod and have the same priority. The first by name wins, which is
    hard to see.

    Avoid::

        # in a.policy
        for pods where pod.label.tier == "gold"
        filter node.ready
        # in b.policy
        for pods where pod.namespace == "shop"
        filter node.ready and fits()

    Prefer::

        # in a.policy
        for pods where pod.label.tier == "gold"
        priority 10
        filter node.ready
        # in b.policy
        for pods where pod.namespace == "shop"
        filter node.ready and fits()
    """
    policies, facts, met = _compared(checked.policies)
    for at, (other, others) in enumerate(zip(policies, met, strict=True)):
        found = (
            one
            for one, known in ((policies[before], facts[before]) for before in others if before < at)
            if one.scheduler == other.scheduler
            and one.subject is other.subject
            and one.priority == other.priority
            and bool(one.owner) == bool(other.owner)  # an owner's policy comes before one of the administrator
            and known is not None
            and (other.governs is None or not never(other.governs, given=known))
            and not known.effort.is_spent
        )
        rivals = list(islice(found, _MOST_RIVALS + 1))
        if rivals:
            more = f" and {len(rivals) - 1} more" if len(rivals) > 1 else ""
            if len(rivals) > _MOST_RIVALS:
                more = f" and {_MOST_RIVALS} or more others"
            names = f"`{other.name}` and `{rivals[0].name}`{more}"
            message = f"policies {names} can match the same {other.subject.decided}, and have the same priority"
            by = "by its name" if rivals[0].owner == other.owner else "if its owner is listed first"
            label = Label(_place(rivals[0]), f"`{rivals[0].name}` wins {by}")
            yield Finding(_place(other), message, "give one of them a higher `priority`", (label,))


@set_rule("P0347")
def canary_of_the_same(checked: Checked) -> Iterator[Finding]:
    """The canary has the same rules as its stable policy, so it has no effect.

    Avoid::

        # in batch.policy
        filter node.ready
        # in batch-next.policy
        canary of batch for 10%
        filter node.ready

    Prefer::

        # in batch.policy
        filter node.ready
        # in batch-next.policy
        canary of batch for 10%
        filter node.ready and fits()
    """
    named = {(policy.owner, policy.own_name): policy for policy in checked.policies}
    for policy in checked.policies:
        canary = policy.canary
        stable = named.get((policy.owner, canary.of)) if canary is not None else None
        if canary is not None and stable is not None and _said(policy) == _said(stable):
            message = f"the canary `{policy.name}` has the same rules as `{canary.of}`"
            yield Finding(canary.tree.span, message, "change it, or remove the file")


def _said(policy: CheckedPolicy) -> tuple[syntax.Statement, ...]:
    return tuple(s for s in policy.statements if not isinstance(s, syntax.Header | syntax.UseFile))


@rule("P0348")
def empty_policy(policy: CheckedPolicy) -> Iterator[Finding]:
    """The file contains no rules, only comments or its version of the language. But it is a policy: it governs all pods
    of its scheduler and places them as Kubernetes does. It may be truncated or commented out by mistake. If you want
    such a policy, write `use kubernetes`.

    Avoid::

        # filter node.ready

    Prefer::

        use kubernetes
    """
    if not policy.statements:
        message = f"`{policy.name}` contains no rules, so it governs all pods and places them as Kubernetes does"
        yield Finding(_place(policy), message, "write `use kubernetes` if you want this; otherwise remove the file")


@set_rule("P0349")
def older_language(checked: Checked) -> Iterator[Finding]:
    """The file is written in an older version of the language. It keeps its meaning, but the manual describes the
    newest version. `policyctl fmt --upgrade` writes the same policy in the newest version.

    Avoid::

        language 1
        filter node.ready

    Prefer::

        language 2
        filter node.ready
    """
    for file in checked.files:
        for statement in file.statements:
            if isinstance(statement, syntax.Language) and statement.version < NEWEST:
                message = f"the file is written in language {statement.version}; the newest is {NEWEST}"
                advice = f"run `policyctl fmt --upgrade {file.source.name}`, which keeps the meaning"
                yield Finding(statement.span, message, advice)


@rule("P0343")
def kubelet_rejection(policy: CheckedPolicy) -> Iterator[Finding]:
    """Without this default filter, pods can be bound to nodes whose kubelet rejects them or cannot start them.

    Avoid::

        use kubernetes without NodeResourcesFit
        filter node.ready

    Prefer::

        use kubernetes
        filter node.ready
    """
    for statement in policy.statements:
        if isinstance(statement, syntax.UseKubernetes):
            for plugin in statement.without:
                if plugin.name in policy.unsafe_without:
                    message = f"without `{plugin.name}` pods can be bound to nodes whose kubelet rejects them"
                    yield Finding(plugin.span, message, "keep the filter")


_TOPOLOGIES = ("node", "zone", "region")


@rule("P0345")
def misspelt_topology(policy: CheckedPolicy) -> Iterator[Finding]:
    """After `over` and `within one`, write `node`, `zone`, `region` or a label key of nodes. This key is similar to one
    of these words, or is written like a field (`node.zone`), and is probably a mistake. No node has such a label, so
    the statement would not work.

    Avoid::

        spread by pod.label.tenant over zones

    Prefer::

        spread by pod.label.tenant over zone
    """
    for clause in policy.clauses:
        one, word = getattr(clause.tree, "topology", None), "within one" if isinstance(clause, Gang) else "over"
        for topology in (clause.tree.levels or ()) if isinstance(clause, Gang) else (one,) if one is not None else ():
            if topology.key in (*_TOPOLOGIES, "any", *policy.definitions) or "/" in topology.key:
                continue
            subject, _, field = topology.key.partition(".")
            meant = closest(topology.key, _TOPOLOGIES)
            if subject == "node" and field:
                meant = {"name": "node"}.get(field, field.removeprefix("label."))
            if meant is not None:
                message = f"`{topology.key}` is interpreted as a label key"
                yield Finding(topology.span, message, f"did you mean `{meant}`?", fix=_word(topology.span, meant))
            elif subject == "pod" and field:
                message = f"`{topology.key}` is interpreted as a label key of nodes"
                advice = f"write a label of the nodes that defines the domains: `{word} rack`"
                yield Finding(topology.span, message, advice)


def _word(span: Span, word: str) -> Fix:
    return Fix(f"write {word}", (Edit(span, word),), safe=False)


@rule("P0344")
def group_of_unlabelled_pods(policy: CheckedPolicy) -> Iterator[Finding]:
    """Pods without the label form one group: they share one quota, or wait for each other as one gang, although they
    are unrelated.

    Avoid::

        limit sum(request.cpu) by pod.label.tenant to 100

    Prefer::

        require pod label tenant else "pod missing tenant label"
        limit sum(request.cpu) by pod.label.tenant to 100
    """
    known = known_of(policy)
    requires = [c for c in policy.clauses if c.kind is ClauseKind.REQUIRE and getattr(c, "condition", None) is None]
    for clause in policy.clauses:
        if not isinstance(clause, Quota | WorkloadLimit | Gang) or clause.key is None or not clause.key.info.maybe:
            continue
        facts: Facts | None = known
        conditions = [value for r in requires if (value := getattr(r, "value", None)) is not None]
        conditions += [clause.condition] if clause.condition is not None else []
        for condition in conditions:
            facts = assume(condition, True, facts or nothing_of(policy))
        if known.effort.is_spent:
            return
        if facts is None or facts.words_of(clause.key).absent:
            shown = " ".join(clause.key.span.text.split())
            message = f"{policy.subject.name} without `{shown}` all form one group"
            there = presence(clause.key)
            yield Finding(clause.key.span, message, f"add `require {there}`, or `if {there}`")


@rule("P0346")
def group_of_all_pods(policy: CheckedPolicy) -> Iterator[Finding]:
    """The key is a constant, so all pods form one group. You probably mean the label of that name.

    Avoid::

        spread by "tenant"

    Prefer::

        spread by pod.label.tenant
    """
    for clause in policy.clauses:
        key = getattr(clause, "key", None)
        if isinstance(key, typed.Typed) and isinstance(constant := constant_of(key), str):
            advice = f"write `pod.label.{constant}`" if constant.isidentifier() else "write `pod.label.app`"
            yield Finding(key.span, f"with the key `{constant}`, all pods form one group", advice)


# --- which policies can be for the same pod ----------------------------------------------------------


def meeting(policies: Sequence[Facts | None]) -> list[list[int]]:
    """Return for each policy the others, by position, that no text tells apart from it.

    One of `pod.namespace == "a"` never meets one of `pod.namespace == "b"`. A hundred policies have 4,950 pairs, and
    each proof costs 10 µs: proofs are left for those that meet.

    Args:
        policies: what is known of the pods of each; None where there can be none.
    """
    everyone = frozenset(range(len(policies)))
    asking: defaultdict[Hashable, set[int]] = defaultdict(set)
    by_word: defaultdict[tuple[Hashable, str], set[int]] = defaultdict(set)
    asked = [_asked(facts) for facts in policies]
    for at, words in enumerate(asked):
        for subject, allowed in words.items():
            asking[subject].add(at)
            for word in allowed:
                by_word[subject, word].add(at)
    met = []
    for at, words in enumerate(asked):
        others = everyone - {at}
        for subject, allowed in words.items():
            alike = set().union(*(by_word[subject, word] for word in allowed))
            others = others & alike | others - asking[subject]
        met.append(sorted(others))
    return met


def _asked(facts: Facts | None) -> dict[Hashable, frozenset[str]]:
    """Return of which texts a value must be one, by what it is the value of."""
    words = facts.words.items() if facts is not None else ()
    return {subject: known.allowed for subject, known in words if known.allowed is not None and not known.absent}
