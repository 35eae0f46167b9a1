"""OPERATIONS.md has every alert, OBSERVABILITY.md every metric and line of the log, and no line is outdated."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.deploy.exported import registry

DEPLOY = Path(__file__).parents[2] / "deploy"
FILE = DEPLOY / "OBSERVABILITY.md"
TEXT = FILE.read_text()
OPERATIONS = (DEPLOY / "OPERATIONS.md").read_text()
BEGIN, END = "<!-- begin metrics -->\n", "<!-- end metrics -->"


def rows(heading: str, page: str = TEXT) -> dict[str, str]:
    """First cells of the table under a heading of a page, each with the rest of its line."""
    part = page[page.index(f"## {heading}") :].partition("\n## ")[0]
    lines = [line.strip("|").split("|", 1) for line in part.splitlines() if line.startswith("| ")]
    return {first.strip().strip("`"): rest.strip() for first, rest in lines[1:]}


def test_each_alert_is_there_with_what_to_do() -> None:
    rule = yaml.safe_load((DEPLOY / "components" / "monitoring" / "prometheus-rule.yaml").read_text())
    alerts = {each["alert"] for group in rule["spec"]["groups"] for each in group["rules"]}
    assert set(rows("Alerts", OPERATIONS)) == alerts


def with_metrics(text: str) -> str:
    """Return the page with the table of metrics that the program exports."""
    lines = ["| metric | type | meaning |", "|---|---|---|"]
    for family in registry().collect():
        if not family.name.startswith(("process_", "python_")):
            name = family.name + ("_total" if family.type == "counter" else "")
            lines.append(f"| `{name}` | {family.type} | {family.documentation.rstrip('.')} |")
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2]


def test_each_metric_is_there_with_its_text() -> None:
    assert len(rows("Metrics")) > 20
    assert with_metrics(TEXT) == TEXT, "run: make reference"


def test_symptoms_name_alerts_that_there_are() -> None:
    named = set(re.findall(r"alert (Pol\w+)", OPERATIONS))
    assert named
    assert named <= set(rows("Alerts", OPERATIONS))


def test_each_line_of_the_log_is_written_by_the_program() -> None:
    engine = DEPLOY.parent / "engine/kube_policy_scheduler"
    source = "\n".join(
        path.read_text() for folder in ("daemon", "adapters") for path in sorted((engine / folder).rglob("*.py"))
    )
    lines = rows("Log")
    assert len(lines) >= 6
    for message, rest in lines.items():
        call = re.search(rf'logger\.(\w+)\(\s*(?:level, )?"{re.escape(message)}"', source)
        assert call is not None, message
        assert call[1] in (rest.split("|")[0].strip(), "log"), message


if __name__ == "__main__":
    FILE.write_text(with_metrics(TEXT))
