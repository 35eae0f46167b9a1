"""Coverage as people read it, and as Cobertura XML."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from posixpath import dirname
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kube_policy_scheduler.diagnostics import Span, excerpt, printable
from kube_policy_scheduler.tooling.coverage.measure import FileCoverage, Ratio, SiteCoverage, percent, totals
from kube_policy_scheduler.tooling.text_table import BLUE, BOLD, RED, Terminal

WIDTH = 100
"""Columns of source lines where a line may be as wide as it likes."""
_NOT_REACHED = "never reached"


def lines(files: Sequence[FileCoverage], *, to: Terminal) -> Iterator[str]:
    """Yield what is not covered, each with its source line and a caret, and the totals as last line."""
    for file in files:
        head = f"{file.source.name}: clauses {file.clause_ratio}, branches {file.branch_ratio}"
        yield to.paint(BOLD, printable(head))
        before = 0
        for span, text in _gaps(file):
            number, _ = span.source.position(span.start)
            yield from _marked(span, text, repeated=number == before, to=to)
            before = number
    clauses, branches = totals(files)
    yield f"clauses {clauses}, branches {branches}"


def _gaps(file: FileCoverage) -> Iterator[tuple[Span, str]]:
    """Yield the places that are not covered with what is missing, in the order of the text; outermost only."""
    found = [(clause.span, _NOT_REACHED) for clause in file.clauses if not clause.decisions]
    silent = [span for span, _ in found]
    for covered in file.sites:
        span = covered.site.span
        if any(outer.start <= span.start and span.end <= outer.end for outer in silent):
            continue
        if not covered.reached:
            silent.append(span)
            found.append((span, _NOT_REACHED))
        elif covered.unseen:
            found.append((span, _missing(covered)))
    yield from sorted(found, key=lambda gap: (gap[0].start, -gap[0].end))


def _missing(covered: SiteCoverage) -> str:
    return ", ".join(covered.site.never(outcome) for outcome in covered.unseen)


def _marked(span: Span, text: str, *, repeated: bool, to: Terminal) -> Iterator[str]:
    """Yield the line of a span, unless it stands there already, and the marks under it."""
    number, _ = span.source.position(span.start)
    gutter = max(4, len(str(number)))
    line, caret = excerpt(span, "^", (to.width or WIDTH) - gutter - 3)
    if not repeated or line.startswith("…"):
        yield f"{to.paint(BLUE, f'{number:>{gutter}} |')} {line}"
    yield f"{to.paint(BLUE, ' ' * gutter + ' |')} {to.paint(RED, f'{caret} {text}')}"


def data(files: Sequence[FileCoverage]) -> dict[str, Any]:
    """Return the coverage as plain values: files with every clause and every branch, and the totals."""
    clauses, branches = totals(files)
    return {
        "files": [
            {
                "file": file.source.name,
                "clauses": [
                    {"clause": f"{clause.keyword} {clause.name}", **_place(clause.span), "decisions": clause.decisions}
                    for clause in file.clauses
                ],
                "branches": [
                    {
                        "text": covered.site.span.text,
                        "kind": covered.site.kind.value,
                        **_place(covered.site.span),
                        "seen": {outcome.value: count for outcome, count in covered.seen.items()},
                    }
                    for covered in file.sites
                ],
            }
            for file in files
        ],
        "summary": {
            "clauses": {"covered": clauses.covered, "total": clauses.total},
            "branches": {"covered": branches.covered, "total": branches.total},
            "percent": round(percent(files), 2),
        },
    }


def _place(span: Span) -> dict[str, Any]:
    (line, column), (end_line, end_column) = span.source.position(span.start), span.source.position(span.end)
    return {"line": line, "column": column, "end": {"line": end_line, "column": end_column}}


_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<!DOCTYPE coverage SYSTEM "http://cobertura.sourceforge.net/xml/coverage-04.dtd">\n'
)


@dataclass(slots=True)
class _Line:
    hits: int | None
    """Decisions; None where no clause starts here."""
    sites: list[SiteCoverage]

    @property
    def decisions(self) -> int:
        """Return in how many decisions the line had a part."""
        answered = max((max(site.seen.values()) for site in self.sites), default=0)
        return self.hits if self.hits is not None else answered


def cobertura(files: Sequence[FileCoverage], *, timestamp_millis: int, version: str) -> str:
    """Return the document.

    Args:
        files: what was covered.
        timestamp_millis: when, in milliseconds since 1970.
        version: of what wrote it.
    """
    root = Element("coverage", _rates(files, summary=True))
    root.set("complexity", "0")
    root.set("version", version)
    root.set("timestamp", str(timestamp_millis))
    SubElement(SubElement(root, "sources"), "source").text = "."
    packages = SubElement(root, "packages")
    folders: dict[str, list[FileCoverage]] = defaultdict(list)
    for file in files:
        folders[dirname(file.source.name.replace("\\", "/"))].append(file)
    for folder, inside in folders.items():
        package = SubElement(packages, "package", {"name": folder.replace("/", ".") or "policies"})
        package.attrib |= {**_rates(inside), "complexity": "0"}
        classes = SubElement(package, "classes")
        for file in inside:
            _class(classes, file)
    indent(root)
    return _HEAD + tostring(root, encoding="unicode") + "\n"


def _class(classes: Element, file: FileCoverage) -> None:
    name = file.source.name.replace("\\", "/")
    attributes = {"name": name.rpartition("/")[2], "filename": name}
    found = SubElement(classes, "class", attributes | _rates([file]))
    found.set("complexity", "0")
    SubElement(found, "methods")
    lines = SubElement(found, "lines")
    for number, line in sorted(_by_line(file).items()):
        element = SubElement(lines, "line", {"number": str(number), "hits": str(line.decisions)})
        ratio = Ratio(sum(len(s.seen) - len(s.unseen) for s in line.sites), sum(len(s.seen) for s in line.sites))
        if not line.sites:
            element.set("branch", "false")
            continue
        element.set("branch", "true")
        element.set("condition-coverage", f"{int(ratio.percent)}% ({ratio})")
        conditions = SubElement(element, "conditions")
        for at, site in enumerate(line.sites):
            share = int(Ratio(len(site.seen) - len(site.unseen), len(site.seen)).percent)
            SubElement(conditions, "condition", {"number": str(at), "type": "jump", "coverage": f"{share}%"})


def _by_line(file: FileCoverage) -> dict[int, _Line]:
    found: dict[int, _Line] = {}
    for clause in file.clauses:
        number, _ = file.source.position(clause.span.start)
        found.setdefault(number, _Line(None, [])).hits = clause.decisions
    for covered in file.sites:
        number, _ = file.source.position(covered.site.span.start)
        found.setdefault(number, _Line(None, [])).sites.append(covered)
    return found


def _rates(files: Sequence[FileCoverage], *, summary: bool = False) -> dict[str, str]:
    _, branches = totals(files)
    found = [line for file in files for line in _by_line(file).values()]
    lines = Ratio(sum(line.decisions > 0 for line in found), len(found))
    done = {"line-rate": f"{lines.percent / 100:.4f}", "branch-rate": f"{branches.percent / 100:.4f}"}
    if summary:
        done |= {
            "lines-covered": str(lines.covered),
            "lines-valid": str(lines.total),
            "branches-covered": str(branches.covered),
            "branches-valid": str(branches.total),
        }
    return done
