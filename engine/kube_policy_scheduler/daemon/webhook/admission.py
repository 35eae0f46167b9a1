"""Whether a ConfigMap with policies may be written: yes, or the diagnostics. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.files.policy_sources import (
    OWNER_LIMITS,
    PolicySources,
    PolicySourcesError,
    is_policy,
    policies_of_config_map,
)
from kube_policy_scheduler.adapters.http.admission_review import SCHEDULING_POLICY, AdmissionRequest, Entries
from kube_policy_scheduler.diagnostics import Diagnostic, Severity, Source, render
from kube_policy_scheduler.lang import codes
from kube_policy_scheduler.lang.owner import Owner
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.wording import plural

MESSAGE_CHARACTERS = 16_000
"""Of a rejection: longer texts are not read, and API servers return the text unchanged."""


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """The verdict on one ConfigMap."""

    refusal: str | None
    """None: it may be written; else what its author reads."""
    warnings: tuple[str, ...] = ()
    hash: str | None = None
    """Of the policies, as the scheduler will say it; None where they cannot be read."""
    concerns_us: bool = True
    """Whether there are policies in it at all."""


NOT_OURS = AdmissionResult(None, concerns_us=False)


def judge(
    request: AdmissionRequest, *, proof: PolicyProof | None = None, owners: Mapping[str, Owner] | None = None
) -> AdmissionResult:
    """Check the policies of a ConfigMap together, as the scheduler does before it takes them over.

    Args:
        request: what is to be written.
        proof: what has to vouch for the administrator's policies; None: nothing.
        owners: by `configMap NAMESPACE/NAME`, or the namespace of SchedulingPolicies, that hold their policies; None:
            there is no configuration to know them from.

    A ConfigMap without policies is none of our business, unless it had some: the scheduler would go on with those.
    """
    new, old = request.new, request.old
    if new is None or request.operation not in ("CREATE", "UPDATE"):
        return NOT_OURS
    if not any(map(is_policy, new.names)) and (old is None or not any(map(is_policy, old.names))):
        return NOT_OURS
    if old is not None and proof is None and _policies(new) == _policies(old):
        return NOT_OURS  # labels and the like; or what was there before us, which is not made better by refusing those
    if request.kind == SCHEDULING_POLICY:
        where, key = f"schedulingPolicy {request.namespace}/{request.name}", request.namespace
    else:
        where = key = f"configMap {request.namespace}/{request.name}"
    owner = (owners or {}).get(key)
    if request.kind == SCHEDULING_POLICY and owners is None:
        return NOT_OURS
    if request.kind == SCHEDULING_POLICY and owner is None:
        warning = f"the scheduler ignores it: no owner of policies reads those of namespace {request.namespace}"
        return AdmissionResult(None, (warning,))
    try:
        if owner is not None:
            sources = policies_of_config_map(new.data, new.binary_data, shown=where, limits=OWNER_LIMITS)
        else:
            sources = policies_of_config_map(new.data, new.binary_data, shown=where, proof=proof)
    except PolicySourcesError as error:
        return AdmissionResult(str(error))
    result = _linted(sources, where, owner)
    if request.kind == SCHEDULING_POLICY and _needs_others(sources, owner):
        warning = "not checked, as it needs other SchedulingPolicies of the namespace: look at its status"
        return AdmissionResult(None, (warning,), result.hash)
    return result


def _needs_others(sources: PolicySources, owner: Owner | None) -> bool:
    """Return whether policies name others that the review does not show."""
    found = load([Source(name, text) for name, text in sources.files], owner=owner).diagnostics
    return any(each.code in (codes.NO_FILE.id, codes.NO_STABLE.id) for each in found)


def _policies(entries: Entries) -> dict[str, str | bytes]:
    everything: dict[str, str | bytes] = {**entries.data, **entries.binary_data}
    return {name: content for name, content in everything.items() if is_policy(name)}


def _linted(sources: PolicySources, where: str, owner: Owner | None) -> AdmissionResult:
    found = load([Source(name, text) for name, text in sources.files], owner=owner).diagnostics
    bad = [diagnostic for diagnostic in found if diagnostic.severity is Severity.ERROR]
    warnings = tuple(
        render(diagnostic).partition("\n")[0] for diagnostic in found if diagnostic.severity is Severity.WARNING
    )
    return AdmissionResult(_refusal(bad, where) if bad else None, warnings, sources.hash)


def _refusal(bad: Sequence[Diagnostic], where: str) -> str:
    counts = {name: len(list(each)) for name, each in groupby(sorted(d.span.source.name for d in bad))}
    summary = ", ".join(f"{plural(number, 'error')} in {name}" for name, number in counts.items())
    text = f"{where} was not written: {summary}"
    for at, diagnostic in enumerate(bad):
        more = f"\n\n{render(diagnostic)}"
        if len(text) + len(more) > MESSAGE_CHARACTERS:
            return f"{text}\n\nand {len(bad) - at} more: policyctl lint shows all"
        text += more
    return f"{text}\n"
