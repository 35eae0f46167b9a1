"""Which policies can be for the same pod, as far as the words tell that they ask for. Compares no pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from kube_policy_scheduler.lint.facts import Facts


def meeting(policies: Sequence[Facts | None]) -> list[list[int]]:
    """Return for each policy the others, by position, that no text tells apart from it.

    One of `pod.namespace == "a"` never meets one of `pod.namespace == "b"`. A hundred policies have 4,950 pairs, and
    each proof costs 10 µs: proofs are left for those that meet.

    Args:
        policies: what is known of the pods of each; None where there can be none.
    """
    everyone = frozenset(range(len(policies)))
    asking: defaultdict[Hashable, set[int]] = defaultdict(set)
    by_word: defaultdict[tuple[Hashable, str], set[int]] = defaultdict(set)
    asked = [_asked(facts) for facts in policies]
    for at, words in enumerate(asked):
        for subject, allowed in words.items():
            asking[subject].add(at)
            for word in allowed:
                by_word[subject, word].add(at)
    met = []
    for at, words in enumerate(asked):
        others = everyone - {at}
        for subject, allowed in words.items():
            alike = set().union(*(by_word[subject, word] for word in allowed))
            others = others & alike | others - asking[subject]
        met.append(sorted(others))
    return met


def _asked(facts: Facts | None) -> dict[Hashable, frozenset[str]]:
    """Return of which texts a value must be one, by what it is the value of."""
    words = facts.words.items() if facts is not None else ()
    return {subject: known.allowed for subject, known in words if known.allowed is not None and not known.absent}
