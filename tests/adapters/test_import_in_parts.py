"""A package whose modules are imported without it: the package runs once something of its own is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from kube_policy_scheduler.adapters.process.import_in_parts import import_in_parts

FILES = {
    "__init__.py": "from . import heavy, light\nfrom .light import number\nown = heavy.number + number\n",
    "light.py": "from . import lighter\nnumber = 1 + lighter.number\n",
    "lighter.py": "number = 1\n",
    "heavy.py": "number = 40\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "package_in_parts"
    folder = tmp_path / name
    folder.mkdir()
    for file, text in FILES.items():
        (folder / file).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[module]


def test_a_module_is_imported_without_the_others(package: str) -> None:
    import_in_parts(package)
    assert import_module(f"{package}.light").number == 2
    assert f"{package}.heavy" not in sys.modules


def test_the_package_runs_when_a_name_of_its_own_is_asked_for(package: str) -> None:
    import_in_parts(package)
    light = import_module(f"{package}.light")
    found = import_module(package)
    assert found.own == 42
    assert found.light is light
    assert f"{package}.heavy" in sys.modules


def test_a_module_that_is_asked_for_is_imported(package: str) -> None:
    import_in_parts(package)
    assert import_module(package).heavy.number == 40


def test_a_name_that_it_does_not_have_is_an_error(package: str) -> None:
    import_in_parts(package)
    with pytest.raises(AttributeError, match="missing"):
        _ = import_module(package).missing


def test_a_package_that_is_imported_already_stays_as_it_is(package: str) -> None:
    before = import_module(package)
    import_in_parts(package)
    assert import_module(package) is before


def test_a_package_that_is_not_installed_is_not_imported() -> None:
    import_in_parts("no_such_package_anywhere")
    assert "no_such_package_anywhere" not in sys.modules
