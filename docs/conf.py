"""The site: `make docs` builds it into build/docs, without a network."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))

LOOK = ROOT / "engine/kube_policy_scheduler/pages/templates/look.css"
"""The colours of the pages of the program, which the site takes over: first the light ones, then the dark."""


def _colours(which: int) -> dict[str, str]:
    names = {
        "paper": ["background-primary"],
        "panel": ["background-secondary"],
        "ink": ["foreground-primary"],
        "quiet": ["foreground-secondary"],
        "line": ["background-border"],
        "accent": ["brand-primary", "brand-content"],
    }
    look = LOOK.read_text(encoding="utf-8")
    return {f"color-{name}": re.findall(rf"--{ours}: (#\w+)", look)[which] for ours in names for name in names[ours]}


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
    "examples/learned/README.md",
]
include_patterns += [".github/CONTRIBUTING.md", ".github/SECURITY.md", "tests/benchmarks/README.md"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
highlight_language = "none"
# `text` blocks are policies with mistakes; the language reference has entries below its sections
suppress_warnings = ["misc.highlighting_failure", "myst.header"]
html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_theme_options = {"light_css_variables": _colours(0), "dark_css_variables": _colours(1)}
pygments_dark_style = "github-dark"
# quotes only: with dashes, a flag such as --for would lose one of its two
smartquotes_action = "q"
exclude_patterns = [".git", ".[!g]*", "build", "engine", "**/node_modules", "tests/[!b]*"]  # not even looked through
html_title = f"{project} {release}"
html_copy_source = False
html_show_sourcelink = False
