"""Cases to a test file, with what is expected of each: what the policy decides today."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kube_policy_scheduler.tooling.coverage.sites import ClauseSites, Outcome, Site, SiteKind
from kube_policy_scheduler.tooling.first_test.case_form import CaseForm
from kube_policy_scheduler.tooling.first_test.expected import CoveringCase, GangStart, Queue, Written
from kube_policy_scheduler.tooling.first_test.search import Found
from kube_policy_scheduler.tooling.short_forms import Json
from kube_policy_scheduler.tooling.tester.suite_file import suite_text
from kube_policy_scheduler.wording import shortened

_LONGEST_NAME = 110
_SHARED_KEYS = ("name", "cpu", "mem", "zone")
"""Of nodes: the file has what most of them share, and a case only the differences."""


def text_of(written: Sequence[Written], found: Found, *, policy: str, name: str, without: Collection[str] = ()) -> str:
    """Return the test file.

    Args:
        written: the cases with what is expected.
        found: what the search came to, for what it did not show.
        policy: path of the policy as the file names it.
        name: of the policy.
        without: names of queues and gangs to leave out.
    """
    gangs = [gang for gang in found.gangs if gang.name not in without]
    queues = [queue for queue in found.queues if queue.name not in without]
    forms = [*(one.case.form for one in written), *(gang.form for gang in gangs)]
    forms += [queue.around for queue in queues if queue.around is not None]
    nodes = [common([form.nodes[at] for form in forms]) for at in range(len(forms[0].nodes))] if forms else []
    metrics = common([form.metrics for form in forms]) if forms else {}
    cases = [_case(one, called, nodes, metrics) for one, called in zip(written, case_names(written), strict=True)]
    cases += [_gang_case(gang, nodes, metrics) for gang in gangs]
    cases += [_queue_case(queue, nodes, metrics) for queue in queues]
    form: Json = {"policy": policy, "nodes": nodes, "metrics": metrics, "cases": cases}
    return suite_text({key: value for key, value in form.items() if value}, comment="\n".join(_comment(found, name)))


def _comment(found: Found, name: str) -> Iterator[str]:
    yield f"First tests of policy {name}, written by `policyctl test --init`: every case shows a clause where it"
    yield "holds, or where it does not. They say what the policy decides today, not that it is right: read them, keep"
    yield "what should be so, and give the cases names that say why."
    if found.unseen:
        yield ""
        yield "No case was found in which"
        for clause, site, outcome in found.unseen:
            yield f"- {_not_shown(clause, site, outcome)}"
    if found.not_varied:
        yield ""
        yield "The tool cannot vary what these read. Write cases for them by hand:"
        for span in found.not_varied:
            line, _ = span.source.position(span.start)
            yield f"- {shortened(' '.join(span.text.split()), _LONGEST_NAME)} (line {line})"


def _case(one: Written, name: str, nodes: Sequence[Json], metrics: Json) -> Json:
    form = one.case.form
    case = _around(form, name, nodes, metrics, tie=one.tie, reads_clock=one.reads_clock)
    return {**case, "pod": form.pod, "expect": one.expect}


def _gang_case(gang: GangStart, nodes: Sequence[Json], metrics: Json) -> Json:
    case = _around(gang.form, gang.name, nodes, metrics, tie=True, reads_clock=gang.reads_clock)
    return {**case, "sequence": gang.sequence(), "expect": gang.expect}


def _queue_case(queue: Queue, nodes: Sequence[Json], metrics: Json) -> Json:
    if queue.around is None:
        return queue.case()
    return {**_around(queue.around, queue.name, nodes, metrics, tie=False, reads_clock=False), **queue.case()}


def _around(form: CaseForm, name: str, nodes: Sequence[Json], metrics: Json, *, tie: bool, reads_clock: bool) -> Json:
    """Return a case without its pods: what differs from what the cases share."""
    changed = [
        {"name": node["name"], **difference(node, base)}
        for node, base in zip(form.nodes, nodes, strict=True)
        if node != base
    ]
    case: Json = {
        "name": name,
        "now": form.now if reads_clock else "",
        "tie": "ok" if tie else "",
        "queued": f"{form.queued_seconds}s" if form.queued_seconds else "",
        "attempts": form.attempts,
        "nodes": changed,
        "pods": list(form.pods),
        "metrics": {query: values for query, values in form.metrics.items() if metrics.get(query) != values},
    }
    return {key: value for key, value in case.items() if value}


# --- names -----------------------------------------------------------------------------------------------


def case_names(written: Sequence[Written]) -> list[str]:
    """Return what the cases are called, in order."""
    names: list[str] = []
    for one in written:
        number, name = 1, _name(one.case)
        made = name
        while made in names:
            number += 1
            made = f"{name} ({number})"
        names.append(made)
    return names


def _name(case: CoveringCase) -> str:
    """Return the clause and what the case shows of it."""
    sites = {site.key: site for site in case.clause.sites}
    answers = dict.fromkeys(answered(sites[key], outcome) for key, outcome in case.goals if outcome is not None)
    about = "; ".join(list(answers)[:3]) or case.notices
    clause = " ".join(case.clause.span.text.split()).split(" else ")[0]
    name = f"{clause}: {about}" if about else clause
    if len(name) > _LONGEST_NAME and about:
        name = f"{case.clause.keyword}: {about}"
    return shortened(name, _LONGEST_NAME)


def answered(site: Site, outcome: Outcome) -> str:
    """Return how a site answered, for people."""
    text = " ".join(site.span.text.split())
    match site.kind, outcome:
        case SiteKind.BOUND, Outcome.TRUE:
            return f"within: {text.split(' else ')[0]}"
        case SiteKind.BOUND, _:
            return f"too many: {text.split(' else ')[0]}"
        case _, Outcome.EQUAL:
            return f"{text}, with both sides equal"
        case ((SiteKind.FALLBACK | SiteKind.SCORE), Outcome.TRUE):
            return f"{text} has a value"
        case _:
            return f"{text} is {outcome.value}"


def _not_shown(clause: ClauseSites, site: Site | None, outcome: Outcome | None) -> str:
    line, _ = clause.span.source.position(clause.span.start)
    if site is None or outcome is None:
        name = clause.name if clause.name.startswith(f"{clause.keyword} ") else f"{clause.keyword} {clause.name}"
        return f"{name} (line {line}) has a say"
    line, _ = site.span.source.position(site.span.start)
    return f"{answered(site, outcome)} (line {line})"


# --- what cases share ------------------------------------------------------------------------------------


def common(forms: Sequence[Mapping[str, Any]]) -> Json:
    """Return what all forms have in common; of what nodes are known by, what most of them have."""
    done: Json = {}
    for key in forms[0]:
        if not all(key in form for form in forms):
            continue
        values = [form[key] for form in forms]
        if all(isinstance(value, dict) for value in values) and key != "status":
            inner = common(values)
            if inner:
                done[key] = inner
        elif key in _SHARED_KEYS or all(value == values[0] for value in values):
            done[key] = max(values, key=values.count)
    return done


def difference(form: Mapping[str, Any], base: Mapping[str, Any]) -> Json:
    """Return what has to be laid over a base to get a form, which has all keys of the base."""
    done: Json = {}
    for key, value in form.items():
        if key not in base:
            done[key] = value
        elif value != base[key]:
            nested = isinstance(value, dict) and isinstance(base[key], dict)
            done[key] = difference(value, base[key]) if nested else value
    return done
