"""The policies that we ship, and their tests."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = [ROOT / "policies", ROOT / "deploy"]
POLICIES = sorted(file for folder in FOLDERS for file in folder.rglob("*.policy"))
SUITES = sorted(file for folder in FOLDERS for file in folder.rglob("*.test.yaml"))
