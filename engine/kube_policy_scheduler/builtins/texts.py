"""Functions of texts: asked once per distinct text, not once per node. Of an absent label: false, or absent."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

import re2  # type: ignore[import-untyped]  # it has no stubs

from kube_policy_scheduler.lang.signature import ConstantText, Number, Text, TextList, Truth, TypeSpec, builtin
from kube_policy_scheduler.lang.types import Kind

_MAX_LENGTH = 1000
_MAX_MEMORY = 1 << 20
"""Bytes that one compiled expression may take; repeated repetitions are refused beyond it."""


@lru_cache(maxsize=1024)
def pattern(text: str) -> Any:
    """Compile a regular expression.

    Raises:
        ValueError: it does not compile, or is too large.
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"the regular expression has more than {_MAX_LENGTH} characters; split it")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"the regular expression does not compile: {reason}; use the syntax of RE2") from error


Pattern = Annotated[Any, TypeSpec(Kind.TEXT, constant=True, prepare=pattern)]
"""A regular expression, compiled when the policy is checked."""


@builtin(foreign=("regex", "regexp", "rematch", "match", "like", "test"), advice='write `text matches "…"`')
def matches(text: Text, pattern: Pattern) -> Truth:
    """Return whether a regular expression (RE2 syntax) matches the whole text; also written `text matches "…"`."""
    return pattern.fullmatch(text) is not None


@builtin(opposite="endswith")
def startswith(text: Text, prefix: Text) -> Truth:
    """Return whether the text starts with another text."""
    result: bool = text.startswith(prefix)
    return result


@builtin(opposite="startswith")
def endswith(text: Text, suffix: Text) -> Truth:
    """Return whether the text ends with another text."""
    result: bool = text.endswith(suffix)
    return result


@builtin()
def contains(text: Text, part: Text) -> Truth:
    """Return whether the text contains another text."""
    result: bool = part in text
    return result


@builtin()
def lower(text: Text) -> Text:
    """Return the text in lower case."""
    return text.lower()


@builtin()
def split(text: Text, separator: ConstantText) -> TextList:
    """Return the parts of a text between separators: `split(pod.name, "-")[0]`."""
    return tuple(text.split(separator)) if separator else (text,)


@builtin(
    bounds=(0, 1e7),
    foreign=("len", "size", "cardinality"),
    advice="write `length(…)` for texts and lists, `count(p in node.pods)` for pods",
)
def length(text: Text) -> Number:
    """Return the number of characters of a text, or of items of a list: `length(pod.images)`."""
    return float(len(text))
