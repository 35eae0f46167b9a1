"""Schemas that are kept as files, for those who may not import what they are made from."""

from __future__ import annotations

from importlib.resources import files

PUBLISHED = files(__package__)


def configuration_schema_text() -> str:
    """Return the JSON schema of the scheduler's configuration, with what each key means.

    It is made from the settings by `make reference`.
    """
    return PUBLISHED.joinpath("configuration.schema.json").read_text(encoding="utf-8")
