"""The bundle of the editor belongs to its sources; Node is not needed to see that."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "editors/playground"
PAGE = ROOT / "engine/kube_policy_scheduler/playground/page"
BUILD = "run: cd editors/playground && npm ci && npm run build"
MOST_BYTES = 450_000


def test_the_bundle_is_that_of_its_sources() -> None:
    listed = re.search(r"const SOURCES = (\[.*\]);", (SOURCES / "build.mjs").read_text(encoding="utf-8"))
    assert listed
    known = sha256()
    for name in json.loads(listed[1]):
        known.update(f"{name}\n".encode() + (SOURCES / name).read_bytes())
    head, sources, bundle, packages, code = (PAGE / "editor.js").read_text(encoding="utf-8").split("\n", 4)
    assert sources == f"// sources {known.hexdigest()}", BUILD
    assert bundle == f"// bundle {sha256(code.encode()).hexdigest()}", f"the bundle was edited by hand; {BUILD}"
    assert head.startswith("// Generated")
    lock = json.loads((SOURCES / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    for each in packages.removeprefix("// ").split(", "):
        name, _, version = each.rpartition(" ")
        assert lock[f"node_modules/{name}"]["version"] == version, BUILD


def test_the_bundle_is_small_and_its_licences_are_with_it() -> None:
    assert (PAGE / "editor.js").stat().st_size < MOST_BYTES
    licences = (PAGE / "editor.LICENSE.txt").read_text(encoding="utf-8")
    packages = (PAGE / "editor.js").read_text(encoding="utf-8").split("\n", 4)[3].removeprefix("// ").split(", ")
    for each in packages:
        assert f"{each.rpartition(' ')[0]}\n\n" in licences
    assert licences.count("Permission is hereby granted") == len(packages)  # all of them are MIT


def test_the_lock_names_no_registry() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text(encoding="utf-8"))
    assert not [name for name, each in lock["packages"].items() if "resolved" in each]


def test_the_page_needs_no_exception_of_its_security_policy() -> None:
    """No script or style within the HTML, no handlers as attributes, nothing from elsewhere."""
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|<script(?![^>]* src=)|\sstyle=|\son\w+=", html)
    addresses = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert addresses == ["data:,", "/look.css", "/page.css", "/page.js"]
    for script in ("page.js", "map.js"):
        text = (PAGE / script).read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
