"""What builtins and fields say of themselves for tools and messages names things that exist."""

from __future__ import annotations

import re

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.framework.default_profile import kubernetes_filters
from kube_policy_scheduler.lang.expressions import AGGREGATES
from kube_policy_scheduler.lang.reading import foreign
from tests.lang.texts import said

BUILTINS, FIELDS = environment().builtins, environment().fields
WITHOUT_A_FIELD = {"node.pods", "node.devices", "node.volume_room"}


def test_opposites_are_builtins_whose_opposite_they_are() -> None:
    named = {name: builtin.words.opposite for name, builtin in BUILTINS.items() if builtin.words.opposite}
    assert named
    assert all(named.get(other) == name for name, other in named.items())


def test_what_builtins_read_can_be_read() -> None:
    read = {path for builtin in BUILTINS.values() for path in builtin.reads} - WITHOUT_A_FIELD
    assert {path for path in read if ".".join(path.split(".")[:2]) not in FIELDS} == set()


def test_default_filters_that_builtins_ask_exist() -> None:
    asked = {builtin.words.plugin for builtin in BUILTINS.values()} - {""}
    assert asked <= {plugin.name for plugin in kubernetes_filters()}


def test_advice_calls_only_what_exists() -> None:
    tables = (foreign.STATEMENTS, foreign.WORDS, foreign.NAMES, foreign.FUNCTIONS, *foreign.FIELDS.values())
    texts = [text for table in tables for text in table.values()]
    texts += [each.advice for each in (*BUILTINS.values(), *FIELDS.values())]
    written = [re.sub('"[^"]*"', "", code) for text in texts for code in re.findall(r"`([^`]*)`", text)]
    called = {name for code in written for name in re.findall(r"\b([a-z_]+)\(", code)}
    assert called - BUILTINS.keys() - AGGREGATES == set()
    asked = {".".join(path) for code in written for path in re.findall(r"\b(node|pod)\.([a-z_]+)", code)}
    roots = {".".join(path.split(".")[:2]) for path in FIELDS}
    assert asked - roots - WITHOUT_A_FIELD == set()


def test_a_foreign_word_means_one_thing() -> None:
    words = [word for builtin in BUILTINS.values() for word in builtin.words.foreign]
    assert len(words) == len(set(words))
    assert not set(words) & (foreign.FUNCTIONS.keys() | BUILTINS.keys())
    for root in ("node", "pod"):
        words = [word for path, field in FIELDS.items() if path.startswith(root) for word in field.foreign]
        assert len(words) == len(set(words))
        assert not set(words) & foreign.FIELDS[root].keys()


def test_every_foreign_word_gets_its_advice() -> None:
    for builtin in BUILTINS.values():
        for word in builtin.words.foreign:
            assert builtin.advice in [found.help for found in said(f"score 1 + {word}(1)")], word
    for path, field in FIELDS.items():
        for word in field.foreign:
            assert field.advice in [found.help for found in said(f"score 1 + {path.split('.')[0]}.{word}")], word
