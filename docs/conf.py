"""The site: `make docs` builds it into build/docs, without a network."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))

project = "kube-policy-scheduler"
release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
copyright = "the authors of kube-policy-scheduler"  # noqa: A001 (Sphinx's name)
extensions = ["myst_parser", "generated"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "README.md",
    "policies/**.md",
    "deploy/*.md",
    "grammar/README.md",
    "editors/README.md",
]
include_patterns += [".github/CONTRIBUTING.md", ".github/SECURITY.md", "tests/benchmarks/README.md"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
highlight_language = "none"
# `text` blocks are policies with mistakes; the language reference has entries below its sections
suppress_warnings = ["misc.highlighting_failure", "myst.header"]
html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
html_show_sourcelink = False
