"""Pages from templates, and excerpts of policies in them."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.wording import amount, percent, plural, signed


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("kube_policy_scheduler.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(amount=amount, coded=coded, percent=percent, plural=plural, sentence=sentence, signed=signed)
    return made


def page(template: str, /, **values: Any) -> str:
    """Return a page.

    Texts are escaped; what has a method `__html__`, such as a chart, is taken as it is.

    Args:
        template: file name in `engine/kube_policy_scheduler/pages/templates`; it extends `base.html`.
        values: what the template names; a name without a value is an error.

    Raises:
        jinja2.UndefinedError: the template names what is not there.
    """
    return _environment().get_template(template).render(values)


_CODE = re.compile(r"`([^`\n]+)`")


class _Html(str):
    """A text that templates take as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def coded(text: str) -> str:
    """Return a text for a page, with what it has in backticks as code; all that others wrote is escaped."""
    return _Html(_CODE.sub(r"<code>\1</code>", escape(text)))


def sentence(text: str) -> str:
    """Return a text as it stands at the beginning of a paragraph; a name in it stays as it is."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One line of a policy."""

    place: str
    """`FILE:LINE:COLUMN`"""
    line: int
    before: str
    """What stands before the column."""
    text: str
    """From the column on."""


def excerpt(place: str, sources: Mapping[str, str]) -> Excerpt | None:
    """Return the line of a place; None where the place is none, or its text is not given.

    Args:
        place: `FILE:LINE:COLUMN`, both counted from 1.
        sources: texts by name.
    """
    name, _, rest = place.rpartition(":")
    name, _, number = name.rpartition(":")
    if name not in sources or not number.isdecimal() or not rest.isdecimal():
        return None
    lines = sources[name].splitlines()
    line, column = int(number), int(rest)
    if not 0 < line <= len(lines):
        return None
    text = lines[line - 1]
    return Excerpt(place, line, printable(text[: column - 1]), printable(text[column - 1 :]))
