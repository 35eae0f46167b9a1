"""Coverage as Cobertura XML, which GitLab, Jenkins, Azure DevOps and Codecov read.

The form is that of https://github.com/cobertura/cobertura, `coverage-04.dtd`: a class is a file, a line is one that a
clause starts on or a branch stands on, and the branches of a line are counted together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import dirname
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kube_policy_scheduler.tooling.coverage.measure import FileCoverage, Ratio, SiteCoverage, totals

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
