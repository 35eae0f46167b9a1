"""What a Prometheus makes of a scrape: each series once, under a name and labels that it accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")

Series = tuple[str, frozenset[tuple[str, str]]]
"""Name and labels."""


def unique_series(text: str) -> Mapping[Series, float]:
    """Return the samples of a scrape by series.

    As Prometheus does, a label without a value counts as absent. Raises AssertionError: a series is there twice (from
    2.52 on, Prometheus drops the second and counts it as a fault of the scrape), or has a name that is none.
    """
    found: dict[Series, float] = {}
    twice = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert _NAME.fullmatch(sample.name), sample
            labels = frozenset((name, value) for name, value in sample.labels.items() if value)
            if (sample.name, labels) in found:
                twice.append(f"{sample.name}{dict(sorted(labels))}")
            found[sample.name, labels] = sample.value
    assert not twice, f"series that are there twice: {twice}"
    return found
