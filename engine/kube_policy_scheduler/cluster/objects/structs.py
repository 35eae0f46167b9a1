"""The base of every API struct, and the words for amounts and labels that all kinds share."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

Quantity: TypeAlias = str | int | float
Resources: TypeAlias = dict[str, Quantity]
Labels: TypeAlias = dict[str, str]


class ApiStruct(Struct, rename="camel", gc=False, kw_only=True, omit_defaults=True):
    """Base of all API structs: camelCase on the wire, untracked by the cyclic collector (they hold no cycles)."""
