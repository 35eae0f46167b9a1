"""Scrapes of a scheduler by time, as promtool reads them: what alerts say of them is asked of promtool itself."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from tests.exposition import Series

SCRAPE_SECONDS = 60
TARGET = {"job": "policy-scheduler", "namespace": "policy-scheduler", "instance": "a"}
"""Labels that a scrape adds."""


@dataclass
class Recording:
    """What was scraped of one or more replicas, a sample a minute."""

    wanted: frozenset[str]
    """The names of metrics that are kept."""
    scrapes: int = 0
    series: dict[Series, list[float | None]] = field(default_factory=dict)
    """None where a series was not there."""

    def scrape(self, registry: CollectorRegistry, **target: str) -> None:
        """Scrape a replica; of several, each after the other, then `next`.

        Its samples are not written and read again, which takes most of the time; `tests/exposition.py` says of what is
        written that Prometheus accepts it.
        """
        for family in registry.collect():
            for sample in family.samples:
                if sample.name in self.wanted:
                    labels = {name: value for name, value in sample.labels.items() if value}
                    self.add(sample.name, labels | TARGET | target, sample.value)
        self.add("up", TARGET | target, 1.0)

    def add(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add one sample of now."""
        if name in self.wanted:
            values = self.series.setdefault((name, frozenset(labels.items())), [])
            values += [None] * (self.scrapes - len(values))
            values.append(value)

    def next(self) -> None:
        """Go on to the time of the next scrape."""
        self.scrapes += 1

    def values(self, name: str, **labels: str) -> list[float | None]:
        """Return the samples of the first series with this name and these labels."""
        for (found, with_labels), values in self.series.items():
            if found == name and labels.items() <= dict(with_labels).items():
                return values
        raise KeyError(name)

    def input_series(self) -> list[dict[str, str]]:
        """Return them in the words of promtool."""
        found = []
        for (name, labels), values in self.series.items():
            shown = ", ".join(f"{key}={_quoted(value)}" for key, value in sorted(labels))
            found.append({"series": f"{name}{{{shown}}}", "values": " ".join(_runs([*values, *self._end(values)]))})
        return found

    def _end(self, values: list[float | None]) -> list[float | None]:
        return [None] * (self.scrapes - len(values))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _runs(values: Iterable[float | None]) -> Iterator[str]:
    """Yield a word for each run of equal values."""
    began = False
    for value, run in groupby(values):
        number = len(list(run))
        if value is None:
            # where a series ends, Prometheus notes it: else its last value would count for five more minutes
            yield " ".join(["stale" if began else "_"] * number)
        else:
            began = True
            yield f"{value:.12g}" if number == 1 else f"{value:.12g}x{number - 1}"


def metrics_of(rules: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the metrics that rules read."""
    expressions = " ".join(rule["expr"] for group in rules["groups"] for rule in group["rules"])
    return frozenset(
        re.findall(r"\b(?:scheduler|policy_scheduler|leader_election|rest_client)_\w+|\bup\b", expressions)
    )


def firing(folder: Path, recording: Recording, alerts: Iterable[str], *, at: Iterable[int]) -> dict[str, list[int]]:
    """Return the minutes at which each alert fires, of those that are asked for; of no alert that never does.

    folder: with the rules in rules.yaml.
    """
    minutes, names = list(at), list(alerts)
    found: dict[str, list[int]] = {}
    asked = [
        {
            "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": "{}", "value": 0}],
        }
        for alert in names
        for minute in minutes
    ]
    test = {"interval": f"{SCRAPE_SECONDS}s", "input_series": recording.input_series(), "promql_expr_test": asked}
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "recorded.yaml").write_text(json.dumps(tests))  # which is YAML, too
    done = subprocess.run(
        ["promtool", "test", "rules", "recorded.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr
    for alert, minute in re.findall(r'expr: "count\(ALERTS\{alertname=\\"(\w+)\\".*?", time: (\w+),', said):
        hours, _, rest = minute.partition("h") if "h" in minute else ("0", "", minute)
        found.setdefault(alert, []).append(60 * int(hours) + int(rest.partition("m")[0] or 0))
    assert found or done.returncode == 0, said
    return found
