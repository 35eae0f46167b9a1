"""How the demo of a fleet shows itself: clusters with the replicas that they run, or a line for each change."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kube_policy_scheduler.demo.fleet.manager import Seen
from kube_policy_scheduler.demo.fleet.story import CLUSTERS, WORKLOADS, told
from kube_policy_scheduler.demo.screen import Picture, PlainLines, Teller

_STYLES = {"web": "green", "api": "bright_blue", "report": "yellow"}


class FleetScreen(Teller, Protocol):
    """What the demo of a fleet tells."""

    def show(self, seen: Seen) -> None:
        """Show where everything is now."""


def screen(*, closed: Callable[[], object]) -> FleetScreen:
    """Return the live picture on a terminal, else plain lines; closed: called once nobody reads these any more."""
    return FleetPicture() if sys.stdout.isatty() else FleetLines(closed=closed)


class FleetLines(PlainLines):
    """A line for each placement and each cluster that is lost or returns."""

    def __init__(self, *, closed: Callable[[], object]) -> None:
        super().__init__(closed=closed)
        self._shown = Seen()

    def show(self, seen: Seen) -> None:
        """Print what differs from before."""
        before, self._shown = self._shown, seen
        for name in sorted(seen.lost - before.lost):
            self.say(f"lost     {name}")
        for name in sorted(before.lost - seen.lost):
            self.say(f"back     {name}")
        for workload, targets in seen.placed.items():
            if before.placed.get(workload, {}) != targets:
                self.say(f"placed   {workload:<8} -> {told(targets)}")
        for workload, why in seen.waiting.items():
            if before.waiting.get(workload) != why:
                self.say(f"waiting  {workload:<8}    {why}")


class FleetPicture(Picture):
    """A table with a row for each cluster and a column for each workload."""

    title = "policies"

    def __init__(self, console: Console | None = None) -> None:
        self._seen = Seen()
        super().__init__(console)  # draws the first picture

    def show(self, seen: Seen) -> None:
        """Show this from now on, with a line for each workload that begins to wait."""
        for workload, why in seen.waiting.items():
            if self._seen.waiting.get(workload) != why:
                self.say(f"{workload} waits: {why}", style="yellow")
        self._seen = seen

    def table(self) -> Table:
        """Return the clusters with the replicas of each workload."""
        table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
        for name in ("cluster", "region", "provider"):
            table.add_column(name, no_wrap=True)
        table.add_column("price", no_wrap=True, justify="right")
        table.add_column("cores", no_wrap=True, justify="right")
        for each in WORKLOADS:
            wanted = self._seen.wanted.get(each.name, each.replicas)
            table.add_column(f"{each.name} ({wanted})", no_wrap=True, ratio=1)
        for cluster in CLUSTERS:
            is_lost = cluster.name in self._seen.lost
            used = sum(running.get(cluster.name, 0) for running in self._seen.running.values())
            cores = Text("lost", style="bold red") if is_lost else Text(f"{used}/{cluster.cores}")
            title = Text(cluster.name, style="dim strike" if is_lost else "bold")
            dots = (self._dots(each.name, cluster.name) for each in WORKLOADS)
            table.add_row(title, cluster.region, cluster.provider, str(cluster.price), cores, *dots)
        return table

    def legend(self) -> Text:
        """Return what a dot means."""
        return Text("● a replica that runs   ○ a replica that starts", style="dim")

    def _dots(self, workload: str, cluster: str) -> Text:
        placed = self._seen.placed.get(workload, {}).get(cluster, 0)
        running = min(placed, self._seen.running.get(workload, {}).get(cluster, 0))
        return Text("●" * running + "○" * (placed - running), style=_STYLES.get(workload, "white"))
