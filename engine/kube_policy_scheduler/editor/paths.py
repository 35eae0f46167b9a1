"""Paths to fields among the words of a statement: what they begin with, and what they are about."""

from __future__ import annotations

from collections.abc import Sequence

from kube_policy_scheduler.lang.reading.parse_tokens import Token


def path_before(words: Sequence[Token]) -> tuple[str, ...]:
    """Return the names of the path that ends with the dot at the end: `node.free.` gives node, free."""
    path: list[str] = []
    index = len(words) - 1
    while index >= 1 and words[index].kind == "DOT" and words[index - 1].kind in ("NAME", "POD", "MEMBER"):
        path.append(words[index - 1].text)
        index -= 2
    return tuple(reversed(path))


def subject_of(root: str, words: Sequence[Token]) -> str:
    """Return what a path is about: `pod` and `node`, also by a name that an aggregate gives them."""
    if root in ("node", "pod"):
        return root
    if root == "victim":
        return "pod"
    for index in range(len(words) - 1, 0, -1):
        if words[index - 1].text == root and words[index].kind == "IN":
            for token in words[index:]:
                if token.kind == "MEMBER":
                    return {"pods": "pod", "nodes": "node"}.get(token.text, "")
            break
    return ""
