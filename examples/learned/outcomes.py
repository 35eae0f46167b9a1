"""Compare what came of decisions: a line for each table of `policyctl dataset`.

python outcomes.py busy_later --above 0.5 rule.csv learned.csv
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description="Compare what came of decisions.")
    parser.add_argument("outcome", help="the column")
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE.csv")
    parser.add_argument("--above", type=float, required=True, metavar="VALUE", help="count the outcomes above this")
    given = parser.parse_args()
    width = max(len(table.stem) for table in given.tables)
    print(f"{'':{width}}  decisions    mean  above {given.above:g}")
    for table in given.tables:
        try:
            with table.open(newline="") as file:
                values = [float(row[given.outcome]) for row in csv.DictReader(file) if row[given.outcome]]
        except (OSError, ValueError, KeyError) as error:
            sys.exit(f"outcomes.py: {table}: no column {given.outcome} of numbers ({error})")
        if not values:
            sys.exit(f"outcomes.py: {table}: no decision has a value of {given.outcome}")
        above = sum(value > given.above for value in values) / len(values)
        print(f"{table.stem:{width}}  {len(values):>9}  {sum(values) / len(values):>6.3f}  {above:>8.1%}")


if __name__ == "__main__":
    main()
