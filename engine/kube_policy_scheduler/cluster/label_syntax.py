"""What the API server accepts as a label key or value. Rules: `k8s.io/apimachinery/pkg/util/validation`."""

from __future__ import annotations

import re
from functools import lru_cache

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_MAX_NAME = 63
_MAX_SUBDOMAIN = 253


def is_qualified_name(text: str) -> bool:
    """Return whether the text is `name` or `dns.subdomain/name`, as label keys and resource names are."""
    return len(text) <= _MAX_SUBDOMAIN + 1 + _MAX_NAME and _is_qualified_name(text)


@lru_cache(maxsize=4096)
def _is_qualified_name(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > _MAX_SUBDOMAIN or _SUBDOMAIN.fullmatch(prefix) is None):
        return False
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Return whether the text may be a label's value; the empty one may."""
    return not text or (len(text) <= _MAX_NAME and _is_name(text))


@lru_cache(maxsize=4096)
def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None
