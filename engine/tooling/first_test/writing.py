"""Cases to the text of a test file, with what is expected of each: what the policy decides today."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.tooling.coverage.sites import ClauseSites, Outcome, Site, SiteKind
from engine.tooling.first_test.expected import Written
from engine.tooling.first_test.search import Found
from engine.tooling.first_test.witness import Witness
from engine.tooling.tester.short_forms import Json

_PLAIN = re.compile(
    r"[A-Za-z][-A-Za-z0-9_./]*(?:[:=][A-Za-z0-9][-A-Za-z0-9_./]*)*|[0-9]+(?:\.[0-9]+)?(?:[a-zA-Z]{1,2})", re.ASCII
)
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_LONGEST_NAME = 110
_WIDTH = 116


def text_of(written: Sequence[Written], found: Found, *, policy: str, name: str) -> str:
    """Return the test file.

    Args:
        written: the cases with what is expected.
        found: what the search came to, for what it did not show.
        policy: path of the policy as the file names it.
        name: of the policy.
    """
    return "\n".join(_lines(written, found, policy=policy, name=name)) + "\n"


def _lines(written: Sequence[Written], found: Found, *, policy: str, name: str) -> Iterator[str]:
    yield f"# First tests of policy {name}, written by `policyctl test --init`: every case shows a clause where it"
    yield "# holds, or where it does not. They say what the policy decides today, not that it is right: read them, keep"
    yield "# what should be so, and give the cases names that say why."
    if found.unseen:
        yield "#"
        yield "# No case was found in which"
        for clause, site, outcome in found.unseen:
            yield f"# - {_not_shown(clause, site, outcome)}"
    yield f"policy: {flow(policy)}"
    forms = [one.witness.form for one in written]
    nodes = [common([form.nodes[at] for form in forms]) for at in range(len(forms[0].nodes))] if forms else []
    metrics = common([form.metrics for form in forms]) if forms else {}
    yield "nodes:"
    for node in nodes:
        yield f"- {flow(node)}"
    if metrics:
        yield "metrics:"
        for query, values in metrics.items():
            yield f"  {flow(query)}: {flow(values)}"
    yield "cases:"
    for one, called in zip(written, case_names(written), strict=True):
        yield from _case(one, called, nodes, metrics)


def _case(one: Written, name: str, nodes: Sequence[Json], metrics: Json) -> Iterator[str]:
    form = one.witness.form
    yield f"- name: {flow(name)}"
    yield f"  pod: {flow(form.pod)}"
    changed = [
        {"name": node["name"], **difference(node, base)}
        for node, base in zip(form.nodes, nodes, strict=True)
        if node != base
    ]
    if changed:
        yield from _several("nodes", changed)
    if form.pods:
        yield from _several("pods", form.pods)
    measured = {query: values for query, values in form.metrics.items() if metrics.get(query) != values}
    if measured:
        yield "  metrics:"
        for query, values in measured.items():
            yield f"    {flow(query)}: {flow(values)}"
    for key, value, default in (
        ("now", form.now, ""),
        ("queued", f"{form.queued_seconds}s", "0s"),
        ("attempts", form.attempts, 0),
    ):
        if value != default and (key != "now" or one.reads_clock):
            yield f"  {key}: {flow(value) if key != 'now' else value}"
    if one.tie:
        yield "  tie: ok"
    yield "  expect:"
    for key, value in one.expect.items():
        whole = f"    {key}: {flow(value)}"
        if len(whole) > _WIDTH and isinstance(value, dict):
            yield f"    {key}:"
            for inner, item in value.items():
                yield f"      {flow(inner)}: {flow(item)}"
        else:
            yield whole


def _several(key: str, items: Sequence[Json]) -> Iterator[str]:
    whole = f"  {key}: {flow(list(items))}"
    if len(whole) <= _WIDTH:
        yield whole
        return
    yield f"  {key}:"
    for item in items:
        yield f"  - {flow(item)}"


# --- names -----------------------------------------------------------------------------------------------


def case_names(written: Sequence[Written]) -> list[str]:
    """Return what the cases are called, in order."""
    names: list[str] = []
    for one in written:
        number, name = 1, _name(one.witness)
        made = name
        while made in names:
            number += 1
            made = f"{name} ({number})"
        names.append(made)
    return names


def _name(witness: Witness) -> str:
    """Return the clause and what the case shows of it."""
    sites = {site.key: site for site in witness.clause.sites}
    told = dict.fromkeys(_answer(sites[key], outcome) for key, outcome in witness.goals if outcome is not None)
    about = "; ".join(list(told)[:3])
    clause = " ".join(witness.clause.span.text.split()).split(" else ")[0]
    name = f"{clause}: {about}" if about else clause
    if len(name) > _LONGEST_NAME and about:
        name = f"{witness.clause.keyword}: {about}"
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1].rstrip()}…"


def _answer(site: Site, outcome: Outcome) -> str:
    text = " ".join(site.span.text.split())
    match site.kind, outcome:
        case SiteKind.BOUND, Outcome.TRUE:
            return f"within: {text.split(' else ')[0]}"
        case SiteKind.BOUND, _:
            return f"too many: {text.split(' else ')[0]}"
        case ((SiteKind.FALLBACK | SiteKind.SCORE), Outcome.TRUE):
            return f"{text} has a value"
        case _:
            return f"{text} is {outcome.value}"


def _not_shown(clause: ClauseSites, site: Site | None, outcome: Outcome | None) -> str:
    line, _ = clause.span.source.position(clause.span.start)
    if site is None or outcome is None:
        return f"{clause.keyword} {clause.name} (line {line}) has a say"
    line, _ = site.span.source.position(site.span.start)
    return f"{_answer(site, outcome)} (line {line})"


# --- YAML ------------------------------------------------------------------------------------------------


def common(forms: Sequence[Mapping[str, Any]]) -> Json:
    """Return what all forms have in common: a key with different values has the most frequent one."""
    first = forms[0]
    done: Json = {}
    for key in first:
        if not all(key in form for form in forms):
            continue
        values = [form[key] for form in forms]
        if all(isinstance(value, dict) for value in values) and key != "status":
            inner = common(values)
            if inner:
                done[key] = inner
        elif key in ("name", "cpu", "mem", "zone") or all(value == values[0] for value in values):
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


def flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case int():
            return str(value)
        case float():
            return f"{value:.10g}"
        case str():
            plain = (
                _PLAIN.fullmatch(value)
                and value.lower() not in _WORDS
                and not re.fullmatch(r"[0-9.]+e[0-9]*", value.lower())
            )
            if plain:
                return value
            if '"' in value and value.isprintable():
                return "'" + value.replace("'", "''") + "'"
            return json.dumps(value, ensure_ascii=False)
        case dict():
            return "{" + ", ".join(f"{flow(str(key))}: {flow(item)}" for key, item in value.items()) + "}"
        case _:
            return "[" + ", ".join(flow(item) for item in value) + "]"
