"""KUBERNETES-VERSIONS.md has every difference between versions, from the table that decides; it writes that part."""

from __future__ import annotations

from pathlib import Path

from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, NEWEST, OLDEST, Entry, Feature

FILE = Path(__file__).parents[2] / "deploy" / "KUBERNETES-VERSIONS.md"
BEGIN, END = "<!-- begin features -->\n", "<!-- end features -->"


def since(entry: Entry) -> str:
    if entry.since is None:
        return "never by default"
    return "all versions" if entry.since <= OLDEST else f"1.{entry.since}"


def gate(entry: Entry) -> str:
    if entry.known_since is None:
        return "no"
    first = max(entry.known_since, OLDEST)
    if entry.locked_since is None:
        return f"from 1.{first}"
    last = entry.locked_since - 1
    return f"1.{first} to 1.{last}" if last > first else f"1.{first}"


def with_features(text: str) -> str:
    """Return the page with the table of all differences."""
    lines = ["| name | by default since | feature gate | what holds |", "|---|---|---|---|"]
    for feature in Feature:
        entry = feature.entry
        lines.append(f"| `{entry.name}` | {since(entry)} | {gate(entry)} | {entry.text} |")
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2]


def test_every_difference_is_on_the_page() -> None:
    text = FILE.read_text()

    assert text == with_features(text), "run `make reference`"


def test_the_page_says_which_versions_there_are() -> None:
    text = FILE.read_text()

    assert f"from 1.{OLDEST} to 1.{NEWEST}" in text
    assert f"none of these | {DEFAULT_RULES}" in text


if __name__ == "__main__":
    FILE.write_text(with_features(FILE.read_text()))
