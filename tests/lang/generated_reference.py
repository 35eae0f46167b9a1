"""The language reference, from the same registries that the compiler uses: it can't drift."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.lang.checking.inference import OF_RUNNING_PODS
from kube_policy_scheduler.lang.environment import Field
from kube_policy_scheduler.lang.signature import Builtin
from kube_policy_scheduler.lang.statements import FORMS, WORKLOADS
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.lint.runner import all_codes

_SECTION = re.compile(r"<!-- begin (\w+) -->\n.*?<!-- end \1 -->\n", re.DOTALL)


def refreshed(text: str) -> str:
    """Return a Markdown text with what stands between `<!-- begin NAME -->` and `<!-- end NAME -->` rebuilt.

    Raises:
        KeyError: there is no section of that name.
    """

    def section(found: re.Match[str]) -> str:
        return f"<!-- begin {found[1]} -->\n{SECTIONS[found[1]]()}<!-- end {found[1]} -->\n"

    return _SECTION.sub(section, text)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def statements() -> str:
    """Return the table of statements."""
    rows = ((f"`{s.written}`", s.extension_point or "—", s.meaning) for s in FORMS if s.subject != WORKLOADS)
    return _table(("statement", "extension point", "meaning"), rows)


def statements_of_workloads() -> str:
    """Return the table of statements that only policies of workloads have."""
    rows = ((f"`{s.written}`", s.meaning) for s in FORMS if s.subject == WORKLOADS)
    return _table(("statement", "meaning"), rows)


def fields_of_workloads() -> str:
    """Return the tables of fields of policies of workloads."""
    titles = (("cluster", "Clusters: one value per cluster"), ("workload", "Workload: one value per decision"))
    return _fields(environment().of(WORKLOADS).fields.values(), titles)


def fields() -> str:
    """Return the tables of fields."""
    titles = (("node", "Nodes: one value per node"), ("pod", "Pod: one value per decision"))
    return _fields(environment().fields.values(), titles)


def _fields(known: Collection[Field], titles: Iterable[tuple[str, str]]) -> str:
    parts = []
    for root, title in titles:
        of_pod = root == "pod"
        rows = (
            (f"`{f.written}`", _kind(f) if of_pod else str(f.gives), _first_line(f.doc))
            for f in known
            if f.path.startswith(f"{root}.")
        )
        parts.append(f"### {title}\n\n{_table(('field', 'type', 'meaning'), rows)}")
    return "\n".join(parts)


def _kind(field: Field) -> str:
    if field.depends & Depends.RUN:
        return f"{field.gives}, only of {'running pods' if not field.depends & ~OF_RUNNING_PODS else 'victims'}"
    return f"{field.gives}{', also of running pods' if not field.depends & ~(Depends.TEMPLATE | Depends.OWN) else ''}"


def functions() -> str:
    """Return every function with its signature and manual entry."""
    parts = []
    for builtin in environment().builtins.values():
        note = _note(builtin)
        parts.append(f"#### `{builtin.signature}`\n\n{builtin.doc}{note}\n")
    return "\n".join(parts)


def _note(builtin: Builtin) -> str:
    return "\n\nAllowed only in scores, because it compares nodes." if builtin.scores_only else ""


def codes() -> str:
    """Return the table of diagnostic codes."""
    return _table(("code", "name", "severity"), ((c.id, c.name, c.severity.value) for c in all_codes().values()))


def _first_line(doc: str) -> str:
    return " ".join(doc.split("\n\n")[0].split())


SECTIONS: dict[str, Callable[[], str]] = {
    "statements": statements,
    "statements_of_workloads": statements_of_workloads,
    "fields": fields,
    "fields_of_workloads": fields_of_workloads,
    "functions": functions,
    "codes": codes,
}
"""What a section is made of, by its name."""
