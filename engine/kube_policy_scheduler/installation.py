"""How the package was installed, and so the command that adds one of its extras."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGE = "kube-policy-scheduler"


def command_for(extra: str) -> str:
    """Return the command that adds an extra to this installation, for people to copy."""
    folder = Path(sys.prefix)
    wanted = f"{PACKAGE}[{extra}]"
    if (folder / "pipx_metadata.json").is_file():
        return f"pipx inject {_pipx_name(folder)} {shlex.quote(wanted)}"
    receipt = folder / "uv-receipt.toml"
    if receipt.is_file():
        # uv reinstalls a tool with what the command names, and nothing else
        return " ".join(("uv tool install", *_arguments(receipt, extra)))
    installer = "uv pip install" if _installer() == "uv" else "pip install"
    return f"{installer} {shlex.quote(wanted)}"


def _pipx_name(folder: Path) -> str:
    """Return what pipx calls the installation: with `--suffix`, not the name of the package."""
    try:
        main = json.loads((folder / "pipx_metadata.json").read_bytes())["main_package"]
        return f"{main['package']}{main.get('suffix', '')}"
    except (OSError, ValueError, KeyError, TypeError):
        return PACKAGE


def _arguments(receipt: Path, extra: str) -> Iterator[str]:
    extras, further = {extra}, []
    for each in _requirements(receipt):
        if each["name"] == PACKAGE:
            extras.update(each.get("extras", ()))
        else:
            named = f"[{','.join(each['extras'])}]" if each.get("extras") else ""
            further.append(f"{each['name']}{named}{each.get('specifier', '')}")
    yield shlex.quote(f"{PACKAGE}[{','.join(sorted(extras))}]")
    for requirement in further:
        yield f"--with {shlex.quote(requirement)}"


def _requirements(receipt: Path) -> list[dict[str, Any]]:
    try:
        return list(tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _installer() -> str:
    try:
        return (metadata.distribution(PACKAGE).read_text("INSTALLER") or "").strip()
    except metadata.PackageNotFoundError:
        return ""


def extras() -> dict[str, bool]:
    """Return the extras for people who run the package, and whether all that each needs is installed."""
    found = {name: True for name in metadata.metadata(PACKAGE).get_all("Provides-Extra") or () if name not in _OURS}
    for line in metadata.requires(PACKAGE) or ():
        requirement, _, marker = line.partition(";")
        extra = re.search(r"""extra == ["']([\w-]+)["']""", marker)
        if extra is not None and extra[1] in found:
            name = re.match(r"[\w.-]+", requirement.strip())
            found[extra[1]] &= name is not None and (name[0] == PACKAGE or _is_installed(name[0]))
    return found


_OURS = ("dev", "fuzz")
"""For those who work on the package."""


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
