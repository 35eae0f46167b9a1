"""Imports single modules of a package without its `__init__`, which would import all of them."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any


def import_in_parts(name: str) -> None:
    """Let modules of a package be imported alone. The package itself runs when a name of its own is asked for.

    A package that imports all of its modules has a start wait for those that nobody needs yet. One that is imported
    already stays as it is.
    """
    spec = find_spec(name) if name not in sys.modules else None
    if spec is None or spec.loader is None:
        return
    package, loader = module_from_spec(spec), spec.loader

    def attribute(asked: str) -> Any:
        module = f"{name}.{asked}"
        if find_spec(module) is not None:
            return import_module(module)
        loader.exec_module(package)
        vars(package).pop("__getattr__", None)  # only now: another thread that asks meanwhile runs it, too
        return getattr(package, asked)

    vars(package)["__getattr__"] = attribute
    sys.modules[name] = package
