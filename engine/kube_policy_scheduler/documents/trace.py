"""Cluster traces as CSV: nodes and pods of Alibaba's cluster-trace-gpu-v2023 ("openb"), and lists made like them.

Nodes: `sn` (or `name`), `cpu_milli`, `memory_mib`, and where there are GPUs `gpu` (or `num_gpu`) and `model`;
`creation_time` and `deletion_time` where nodes come and go.
Pods: `name`, `cpu_milli`, `memory_mib`, and where they want GPUs `num_gpu`, `gpu_milli` (thousandths of each; a single
GPU with less than 1000 is a share of one, several are whole ones) and `gpu_spec` (models that will do, `|` between
them); `creation_time` and `deletion_time` in seconds. Columns may stand in any order; others are not read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from kube_policy_scheduler.diagnostics import Diagnostic, Source, Span, closest
from kube_policy_scheduler.documents.codes import BAD_TRACE
from kube_policy_scheduler.documents.yaml_document import DocumentError

WHOLE = 1000
_MOST = 10**12
"""No column holds more: 10^12 thousandths of a core, MiB, or seconds."""
_MOST_GPUS = 256
_MAX_ERRORS = 20
_ONLY_OF_PODS = frozenset({"gpu_milli", "gpu_spec", "pod_phase"})
_TIMES = ("creation_time", "deletion_time")
_ONLY_OF_NODES = frozenset({"sn", "model"})
_NOTHING = frozenset({"nan", "none", "null"})
"""What programs write into cells that are empty."""
_ALIASES = {"name": ("name", "sn"), "gpu": ("gpu", "num_gpu", "gpus"), "num_gpu": ("num_gpu", "gpu", "gpus")}


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One row of a list of nodes."""

    name: str
    cpu_millis: int
    memory_mib: int
    gpus: int
    model: str
    """"" where none is said."""
    created: float | None = None
    """Seconds; None: it is there from the beginning."""
    deleted: float | None = None


@dataclass(frozen=True, slots=True)
class PodKind:
    """What pods of a trace want; many rows want the same."""

    cpu_millis: int
    memory_mib: int
    gpus: int
    share_millis: int
    """Thousandths of each GPU: less than 1000 only where it is one; 0 without GPUs."""
    models: tuple[str, ...]
    """Those that will do, sorted; none: any."""

    @property
    def gpu_millis(self) -> int:
        """Return what it wants of all GPUs together."""
        return self.gpus * self.share_millis


@dataclass(frozen=True, slots=True)
class TracePod:
    """One row of a list of pods."""

    name: str
    kind: PodKind
    created: float | None
    """Seconds."""
    deleted: float | None


@dataclass(frozen=True, slots=True)
class PodList:
    """The pods of a file, and what was taken for something else than it says."""

    pods: tuple[TracePod, ...]
    notes: tuple[str, ...] = ()


class _Row:
    """One line's cells by column, with what is wrong with them."""

    def __init__(self, table: _Table, line: int, cells: Mapping[str, str]) -> None:
        self.line = line
        self._table = table
        self._cells = cells
        self.broken = False

    def text(self, column: str) -> str:
        """Return a cell; "" where it is empty, or there is no such column."""
        text = self._cells.get(column, "")
        return "" if text.lower() in _NOTHING and column != "name" else text

    def whole(self, column: str, *, absent: int | None = None, low: int = 0, high: int = _MOST) -> int:
        """Return a whole number; `absent` for an empty cell, where that may be."""
        text = self.text(column)
        if not text and absent is not None:
            return absent
        value = _number(text)
        if value is None or value != int(value) or not low <= value <= high:
            wanted = f"a whole number from {low}" + (f" to {high}" if high < _MOST else "")
            self.wrong(column, f"expected {wanted}, found {text!r}" if text else f"expected {wanted}, found nothing")
            return low
        return int(value)

    def seconds(self, column: str) -> float | None:
        """Return a time; None for an empty cell."""
        text = self.text(column)
        if not text:
            return None
        value = _number(text)
        if value is None or not -_MOST <= value <= _MOST:
            self.wrong(column, f"expected seconds, found {text!r}")
            return None
        return value

    def wrong(self, column: str, message: str) -> None:
        """Note what is wrong with a cell."""
        self.broken = True
        self._table.wrong(self.line, f"line {self.line}, column {column}: {message}")


def _number(text: str) -> float | None:
    try:
        value = float(text) if len(text) < 40 and "_" not in text else None
    except ValueError:
        return None
    return value if value is None or abs(value) < 1e300 else None


class _Table:
    """A CSV text with a header line."""

    def __init__(self, source: Source, *, needed: Sequence[str], optional: Sequence[str], what: str) -> None:
        self.source = source
        self.found: list[Diagnostic] = []
        self._needed, self._optional, self._what = needed, optional, what

    def wrong(self, line: int, message: str, *, advice: str = "") -> None:
        """Report a line."""
        starts = sum(len(text) for text in islice(self._lines(), line - 1))
        text = self.source.line(line) if self.source.text else ""
        self.found.append(BAD_TRACE.at(Span(self.source, starts, starts + len(text)), message, help=advice))

    def fail(self) -> NoReturn:
        """Give up with what was found."""
        raise DocumentError(self.found[:_MAX_ERRORS])

    def rows(self) -> Iterator[_Row]:
        """Yield the rows that are not empty, their cells by the names that are asked for."""
        reader = csv.reader(self._lines(), skipinitialspace=True, strict=True)
        try:
            columns: list[str] | None = None
            for cells in reader:
                if not any(cell.strip() for cell in cells):
                    continue
                if columns is None:
                    columns = self._columns([cell.strip().lower() for cell in cells], reader.line_num)
                    continue
                if len(cells) != len(columns):
                    message = f"line {reader.line_num}: expected {len(columns)} columns as in the first line"
                    self.wrong(reader.line_num, f"{message}, found {len(cells)}")
                else:
                    pairs = zip(columns, cells, strict=True)
                    yield _Row(self, reader.line_num, {name: cell.strip() for name, cell in pairs if name})
                if len(self.found) >= _MAX_ERRORS:
                    self.fail()
        except csv.Error as error:
            self.wrong(max(1, reader.line_num), f"line {reader.line_num}: not CSV: {error}")
            self.fail()
        if columns is None:
            self.wrong(1, f"no header line; expected the columns {', '.join(self._needed)}")
        if self.found:
            self.fail()

    def _lines(self) -> Iterator[str]:
        """Yield the lines as `Source` counts them: what `splitlines` takes for an end of line besides is text."""
        return io.StringIO(self.source.text, newline="\n")

    def _columns(self, header: list[str], line: int) -> list[str]:
        """Return for each place the name that is asked for, "" where it is not read."""
        other = "pods" if self._what == "nodes" else "nodes"
        theirs = _ONLY_OF_PODS if other == "pods" else _ONLY_OF_NODES
        if theirs & set(header) and not (_ONLY_OF_PODS | _ONLY_OF_NODES) - theirs & set(header):
            message = f"line {line}: expected a list of {self._what}, this is one of {other}"
            self.wrong(line, message, advice="did you swap the two files?")
            self.fail()
        names = [""] * len(header)
        for wanted in (*self._needed, *self._optional):
            places = [place for place, name in enumerate(header) if name in _ALIASES.get(wanted, (wanted,))]
            exact = [place for place in places if header[place] == wanted] or places
            if len(exact) > 1:
                self.wrong(line, f"line {line}: the column {wanted} appears {len(exact)} times")
            if exact:
                names[exact[0]] = wanted
            elif wanted in self._needed:
                meant = closest(wanted, header)
                advice = (
                    f"did you mean `{meant}` instead?" if meant else "the first line names the columns, with commas"
                )
                self.wrong(line, f"line {line}: there is no column {wanted}", advice=advice)
        if self.found:
            self.fail()
        return names


def parse_nodes(source: Source) -> tuple[TraceNode, ...]:
    """Return the nodes of a list.

    Raises:
        DocumentError: it is no such list; every line that cannot be read is reported, up to 20.
    """
    table = _Table(source, needed=("name", "cpu_milli", "memory_mib"), optional=("gpu", "model", *_TIMES), what="nodes")
    nodes: dict[str, TraceNode] = {}
    for row in table.rows():
        node = TraceNode(
            name=row.text("name"),
            cpu_millis=row.whole("cpu_milli"),
            memory_mib=row.whole("memory_mib"),
            gpus=row.whole("gpu", absent=0, high=_MOST_GPUS),
            model=row.text("model"),
            created=row.seconds("creation_time"),
            deleted=row.seconds("deletion_time"),
        )
        if node.deleted is not None and node.deleted < (node.created or 0.0):
            row.wrong("deletion_time", "the node is deleted before it is created")
        if not node.name:
            row.wrong("name", "a node needs a name")
        elif node.name in nodes:
            row.wrong("name", f"a second node of the name {node.name!r}")
        nodes[node.name] = node
    if not nodes:
        table.wrong(1, "the list has no nodes")
        table.fail()
    return tuple(nodes.values())


def parse_pods(source: Source) -> PodList:
    """Return the pods of a list, in its order.

    Raises:
        DocumentError: it is no such list; every line that cannot be read is reported, up to 20.
    """
    optional = ("num_gpu", "gpu_milli", "gpu_spec", *_TIMES)
    table = _Table(source, needed=("name", "cpu_milli", "memory_mib"), optional=optional, what="pods")
    pods: list[TracePod] = []
    kinds: dict[PodKind, PodKind] = {}
    several = ending = 0
    for row in table.rows():
        gpus = row.whole("num_gpu", absent=0, high=_MOST_GPUS)
        share = row.whole("gpu_milli", absent=WHOLE, low=1, high=max(gpus, 1) * WHOLE) if gpus else 0
        if gpus > 1:
            several += share not in (WHOLE, gpus * WHOLE)
            share = WHOLE
        models = tuple(sorted({model.strip() for model in row.text("gpu_spec").split("|")} - {""})) if gpus else ()
        kind = PodKind(row.whole("cpu_milli"), row.whole("memory_mib"), gpus, share, models)
        created, deleted = row.seconds("creation_time"), row.seconds("deletion_time")
        if created is not None and deleted is not None and deleted < created:
            ending += 1
            deleted = created
        pods.append(TracePod(row.text("name") or f"line-{row.line}", kinds.setdefault(kind, kind), created, deleted))
    if not pods:
        table.wrong(1, "the list has no pods")
        table.fail()
    notes = {
        f"pods that want several GPUs with a gpu_milli other than {WHOLE}, taken for whole ones: {several}": several,
        f"pods that are deleted before they are created, taken to end at once: {ending}": ending,
    }
    return PodList(tuple(pods), tuple(note for note, number in notes.items() if number))
