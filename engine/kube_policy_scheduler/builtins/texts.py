"""Functions of texts: asked once per distinct text, not once per node. Of an absent label: false, or absent."""

import math
import re
from functools import lru_cache
from typing import Annotated, Any

from kube_policy_scheduler.lang.reading.literals import quoted
from kube_policy_scheduler.lang.signature import (
    ConstantText,
    MaybeDuration,
    MaybeQuantity,
    MaybeVersion,
    Number,
    Text,
    TextList,
    Truth,
    TypeSpec,
    Words,
    builtin,
)
from kube_policy_scheduler.lang.types import Kind
from kube_policy_scheduler.lang.versions import version_key
from kube_policy_scheduler.patterns import PatternError, compiled, of_glob, was_meant_as_glob
from kube_policy_scheduler.quantities.quantity import QuantityError, nanos
from kube_policy_scheduler.times import parse_duration, unix_seconds

_MAX_LENGTH = 1000
_MAX_MEMORY = 1 << 20
"""Bytes that one compiled expression may take; repeated repetitions are refused beyond it."""


_MOST_DURATION = 64
"""Characters."""
_MOST_SECONDS = 1e11
_DURATION = r"(?a)(?:[0-9]+(?:\.[0-9]+)?(?:ms|min|s|m|h|d|w))+"
_UNIX_SECONDS = r"(?a)[0-9]{9,11}(?:\.[0-9]{1,9})?"
_TIME = (
    r"(?a)[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})?)?"
    r"|[0-9]{8}(?:[Tt][0-9]{4}(?:[0-9]{2})?(?:[Zz]|[+-][0-9]{4})?)?"
)


@lru_cache(maxsize=1024)
def pattern(text: str) -> Any:
    """Compile a regular expression.

    Raises:
        ValueError: it does not compile, or is too large.
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"the regular expression has more than {_MAX_LENGTH} characters; split it")
    try:
        return compiled(text, memory_bytes=_MAX_MEMORY)
    except PatternError as error:
        advice = "use the syntax of RE2"
        if was_meant_as_glob(text):
            advice = f"`*` repeats what stands before it: write `{quoted(of_glob(text))}`"
        raise ValueError(f"the regular expression does not compile: {error}; {advice}") from error


Pattern = Annotated[Any, TypeSpec(Kind.TEXT, constant=True, prepare=pattern)]
"""A regular expression, compiled when the policy is checked."""


@builtin(
    words=Words(foreign=("regex", "regexp", "rematch", "match", "like", "test"), advice='write `text matches "…"`')
)
def matches(text: Text, pattern: Pattern) -> Truth:
    """Return whether a regular expression (RE2 syntax) matches the whole text; also written `text matches "…"`."""
    return pattern.fullmatch(text) is not None


@builtin(words=Words(opposite="endswith"))
def startswith(text: Text, prefix: Text) -> Truth:
    """Return whether the text starts with another text."""
    result: bool = text.startswith(prefix)
    return result


@builtin(words=Words(opposite="startswith"))
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
    bounds=(-1e19, 1e19),
    words=Words(
        reads_text="a quantity",
        foreign=("resource", "bytes", "tobytes"),
        advice='write for example `quantity("4Gi")`, or the amount itself: `4Gi`',
    ),
)
def quantity(text: Text) -> MaybeQuantity:
    """Return a text such as `4Gi`, `500m` or `2` as an amount of cpu or bytes, or as a number, by what it meets.

    `node.free.mem > quantity(pod.annotation.working_set)`. Missing if the text is not a quantity of Kubernetes.
    """
    try:
        return nanos(text) / 1e9
    except QuantityError:
        return math.nan


@builtin(
    bounds=(0, 1e11),
    words=Words(
        reads_text="a duration",
        foreign=("toduration", "parseduration", "interval", "timedelta"),
        advice='write for example `duration("1h30m")`, or the duration itself: `90min`',
    ),
)
def duration(text: Text) -> MaybeDuration:
    """Return a text such as `90s`, `10min`, `1h30m` or `7d` as a duration; missing if it is not one.

    Here `m` is minutes, as Go and Prometheus write them. `w` is a week.
    """
    if len(text) > _MOST_DURATION or re.fullmatch(_DURATION, text) is None:
        return math.nan
    seconds = parse_duration(text)
    return seconds if seconds <= _MOST_SECONDS else math.nan


@builtin(
    bounds=(0, 1e11),
    words=Words(
        reads_text="a time",
        foreign=("timestamp", "parsetime", "date", "datetime", "strptime", "totime"),
        advice='write for example `time("2026-11-22T12:53:00Z")`',
    ),
)
def time(text: Text) -> MaybeDuration:
    """Return a text as a time, which is a duration since 1970: `time(pod.label.deadline) - now() < 1h`.

    The text is RFC 3339 (`2026-11-22T12:53:00Z`), its basic form `20261122T125300Z`, which a label can hold, a date, or
    Unix seconds of 9 to 11 digits. Without an offset, it is UTC. Missing if the text is none of these.
    """
    if re.fullmatch(_UNIX_SECONDS, text) is not None:
        return float(text)
    if re.fullmatch(_TIME, text) is None:
        return math.nan
    seconds = unix_seconds(text)
    return seconds if seconds is not None and seconds >= 0 else math.nan


@builtin(
    words=Words(
        reads_text="a version",
        foreign=("semver", "toversion", "parseversion"),
        advice='write for example `version("1.33.2")`',
    )
)
def version(text: Text) -> MaybeVersion:
    """Return a text as a version, which compares with other versions; missing if it is not one.

    `version(node.kernel) >= version("5.10")`. Reads `v1.33.2`, kernels such as `5.15.0-1051-aws`, and the version of
    `containerd://2.1.4`. Numbers are compared from left to right, those left out are 0. `-alpha`, `-beta`, `-rc.1`,
    `-pre` and `-dev` are older than the release, other suffixes such as `-1051-aws` newer. What follows `+` does not
    count.
    """
    return text if version_key(text) is not None else None


@builtin(
    bounds=(0, 1e7),
    words=Words(
        foreign=("len", "size", "cardinality"),
        advice="write `length(…)` for texts and lists, `count(p in node.pods)` for pods",
    ),
)
def length(text: Text) -> Number:
    """Return the number of characters of a text, or of items of a list: `length(pod.images)`."""
    return float(len(text))
