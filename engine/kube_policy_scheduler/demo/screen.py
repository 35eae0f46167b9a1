"""How the demo shows itself: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kube_policy_scheduler.demo.story import TENANTS, Nodes

_LINES = 8
_HOT_PERCENT, _WARM_PERCENT = 80, 40


class Teller(Protocol):
    """What every demo tells."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, text: str, *, style: str = "") -> None:
        """Tell one line."""

    def keep(self, text: str) -> None:
        """Tell one line that stays in sight."""

    def policy(self, text: str) -> None:
        """Show the policy file as it is now."""


class Screen(Teller, Protocol):
    """What the demo of a cluster tells."""

    def placed(self, pod: str, tenant: str, node: str) -> None:
        """Show that a pod was bound."""

    def removed(self, pod: str) -> None:
        """Show that a pod is gone."""

    def pending(self, pod: str, why: str) -> None:
        """Show why a pod waits."""


def screen(nodes: Nodes, *, closed: Callable[[], object]) -> Screen:
    """Return the live picture on a terminal, else plain lines; closed: called once nobody reads these any more."""
    return LivePicture(nodes) if sys.stdout.isatty() else PodLines(nodes, closed=closed)


class PlainLines:
    """One line for each thing that happens, with the seconds since the start."""

    def __init__(self, *, closed: Callable[[], object]) -> None:
        """closed: called once nobody reads the lines any more."""
        self._closed = closed
        self._start = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def say(self, text: str, *, style: str = "") -> None:
        """Print one line."""
        try:
            print(f"{time.monotonic() - self._start:6.2f}s  {text}", flush=True)
        except BrokenPipeError:
            # what is still buffered, and further lines, have no reader either: without this Python complains at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._closed()

    def keep(self, text: str) -> None:
        """Print one line."""
        self.say(text)

    def policy(self, text: str) -> None:
        """Print the policy, indented."""
        for line in text.splitlines():
            self.say(f"    | {line}")


class PodLines(PlainLines):
    """Where pods go, line by line."""

    def __init__(self, nodes: Nodes, *, closed: Callable[[], object]) -> None:
        super().__init__(closed=closed)
        self._nodes = nodes

    def placed(self, pod: str, tenant: str, node: str) -> None:
        """Print where a pod went."""
        known = self._nodes.get(node)
        about = f"  (cpu {known.usage_percent:.0f} %, {known.zone})" if known else ""
        self.say(f"bound    {pod:<10} -> {node}{about}")

    def removed(self, pod: str) -> None:
        """Print that a pod is gone."""
        self.say(f"gone     {pod}")

    def pending(self, pod: str, why: str) -> None:
        """Print why a pod waits."""
        self.say(f"pending  {pod:<10}    {why}")


class Picture(ABC):
    """What is in sight all the time, with the policy and the last lines below it."""

    title = "demo.policy"
    """Of the policy."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._policy = ""
        self._lines: deque[Text] = deque(maxlen=_LINES)
        self._kept: list[Text] = []
        self._live = Live(console=self._console, refresh_per_second=12, get_renderable=self.picture)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.refresh()
        self._live.__exit__(kind, error, trace)

    def say(self, text: str, *, style: str = "") -> None:
        """Add a line below the table."""
        self._lines.append(Text(text, style=style))

    def keep(self, text: str) -> None:
        """Add a line at the bottom that no other pushes out; it can be copied whole."""
        self._kept.append(Text(text, overflow="fold"))

    def policy(self, text: str) -> None:
        """Show the policy beside the table."""
        self._policy = text.rstrip()

    @abstractmethod
    def table(self) -> Table:
        """Return the table at the top."""

    @abstractmethod
    def legend(self) -> Text:
        """Return the line below the table that says what its signs mean."""

    def picture(self) -> Group:
        """Return what is shown now."""
        table = self.table()
        policy = Panel(Text(self._policy), title=self.title, title_align="left", border_style="dim")
        # what is too much for the screen is left out: older lines first, then the policy
        left = self._console.height - 1 - (table.row_count + 2) - sum(map(self._height, self._kept))
        panel_lines = 2 + len(self._policy.splitlines())
        shown: list[Panel | Text] = []
        if panel_lines <= left:
            shown, left = [policy], left - panel_lines
        lines: list[Text] = []
        for line in reversed(self._lines):
            left -= self._height(line)
            if left < 0:
                break
            lines.append(line)
        return Group(table, self.legend(), *shown, *reversed(lines), *self._kept)

    def _height(self, line: Text) -> int:
        """Return how many lines of the screen a line takes."""
        return -(-max(1, line.cell_len) // self._console.width)


class LivePicture(Picture):
    """A table of the nodes by zone with the tenants' pods on them."""

    def __init__(self, nodes: Nodes, console: Console | None = None) -> None:
        self._nodes = nodes
        self._pods: dict[str, tuple[str, str]] = {}
        super().__init__(console)  # draws the first picture

    def placed(self, pod: str, tenant: str, node: str) -> None:
        """Put a pod on its node."""
        self._pods[pod] = (tenant, node)

    def removed(self, pod: str) -> None:
        """Take a pod off its node."""
        self._pods.pop(pod, None)

    def pending(self, pod: str, why: str) -> None:
        """Add a line that says why a pod waits."""
        self.say(f"{pod} waits: {why}", style="yellow")

    def table(self) -> Table:
        """Return the nodes by zone."""
        on_node: dict[str, list[str]] = {}
        for tenant, host in self._pods.values():
            on_node.setdefault(host, []).append(tenant)
        zones: dict[str, list[Text]] = {}
        for node in self._nodes.values():
            zones.setdefault(node.zone, []).append(self._cell(node.name, on_node.get(node.name, ())))
        table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
        for zone in zones:
            table.add_column(zone, no_wrap=True, ratio=1)
        for row in zip(*zones.values(), strict=False):
            table.add_row(*row)
        return table

    def legend(self) -> Text:
        """Return the tenants with their colours."""
        return Text("  ").join(Text(f"● {tenant}", style=_style(tenant)) for tenant in TENANTS)

    def _cell(self, name: str, tenants: list[str] | tuple[()]) -> Text:
        node = self._nodes[name]
        cell = Text(name, style="" if node.ready else "dim strike")
        if node.ready:
            heat = _heat(node.usage_percent)
            cell.append(f" {node.usage_percent:3.0f}% ", style=heat)
        else:
            cell.append(" down ", style="dim")
        if node.labels.get("node"):
            cell.append(f"{node.labels['node']} ", style="magenta")
        for tenant in sorted(tenants):
            cell.append("●", style=_style(tenant))
        return cell


def _heat(percent: float) -> str:
    if percent >= _HOT_PERCENT:
        return "bold red"
    return "yellow" if percent >= _WARM_PERCENT else "green"


def _style(tenant: str) -> str:
    styles: Mapping[str, str] = {"red": "red", "green": "green", "blue": "bright_blue", "gold": "yellow"}
    return styles.get(tenant, "white")
