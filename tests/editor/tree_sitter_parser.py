"""The parser of `editors/tree-sitter`, made from the tables of our own: what one reads, the other reads alike.

tree-sitter takes any LALR table, so its own generator is not needed, nor a second grammar beside ours. `words.h` tells
words apart, by the lists of words that are written here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lark.common import ParserConf
from lark.grammar import NonTerminal, Rule, Symbol, Terminal
from lark.parsers.lalr_analysis import LALR_Analyzer, Shift

from kube_policy_scheduler.editor.textmate import CONSTANTS
from kube_policy_scheduler.lang.reading import parse_tables
from kube_policy_scheduler.lang.reading.parse_tokens import keywords, signs
from kube_policy_scheduler.lang.statements import BEHIND_A_NAME, GO_ON_BEFORE, GO_ON_BEHIND, KEYWORDS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "editors" / "tree-sitter"
PARSER = FOLDER / "src" / "parser.c"
HIGHLIGHTS = (
    FOLDER / "queries" / "highlights.scm",
    ROOT / "editors" / "zed" / "languages" / "policy" / "highlights.scm",
)
NODES = {
    "NAME": "identifier",
    "MEMBER": "property",
    "OBJECT_NAME": "object_name",
    "LABEL_KEY": "key",
    "LABEL_VALUE": "value",
    "NUMBER": "digits",
    "STRING": "string",
    "COMMENT": "comment",
    "LINE_END": "line_end",
}
"""Words that are nodes of their own; all others have the text that they stand for."""
CAPTURES = (
    ("(comment)", "comment"),
    ("(string)", "string"),
    ("(value)", "string"),
    ("(digits)", "number"),
    ("(property)", "property"),
    ("(key)", "property"),
    ("(object_name)", "label"),
    ("(name)", "variable"),
    ("(let (identifier)", "variable)"),
    ("(metric (identifier)", "variable)"),
    ("(parameters (identifier)", "variable.parameter)"),
    ("(named (identifier)", "variable.parameter)"),
    ("(define (identifier)", "function)"),
    ("(call (identifier)", "function)"),
)
FILE, LINES, LINE_END, END = "file", "__lines", "LINE_END", "$END"


@dataclass(frozen=True)
class Node:
    """What a production makes."""

    origin: str
    name: str
    """Empty where the production makes no node of its own."""


def productions() -> list[Rule]:
    """Return the productions of a file: those of a statement, with a line end between two of them; none is empty."""
    start, line_end = NonTerminal("start"), Terminal(LINE_END)
    file, lines = NonTerminal(FILE), NonTerminal(LINES)
    rules = _without_empty(parse_tables.parser(None).rules)
    for expansion in ([start, line_end], [lines, start, line_end]):
        rules.append(Rule(lines, expansion))
    for expansion in ([], [start], [lines], [lines, start]):
        rules.append(Rule(file, expansion))
    return rules


def _without_empty(rules: list[Rule]) -> list[Rule]:
    """tree-sitter has no productions of nothing: what contains one is written with and without it."""
    empty = {rule.origin for rule in rules if not rule.expansion}
    found: dict[tuple[NonTerminal, tuple[Symbol, ...]], Rule] = {}
    for rule in rules:
        forms: list[list[Symbol]] = [[]]
        for symbol in rule.expansion:
            longer = [[*form, symbol] for form in forms]
            forms = longer + forms if symbol in empty else longer
        for form in forms:
            if form:
                found.setdefault((rule.origin, tuple(form)), Rule(rule.origin, form, 0, rule.alias, rule.options))
    return list(found.values())


def _in_order(states: Mapping[int, Mapping[str, tuple[Any, Any]]], first: int) -> list[int]:
    """Return the states by how they are reached: Lark numbers them differently each time."""
    order = {first: None}
    for state in iter(queue := [first]):
        for _, (kind, target) in sorted(states[state].items()):
            if kind is Shift and target in states and target not in order:
                order[target] = None
                queue.append(target)
    return list(order)


def node(rule: Rule) -> Node:
    """Return what a production makes, as in our own tree: a rule with `?` makes nothing of a single child."""
    name = rule.origin.name
    single = rule.options is not None and rule.options.expand1 and len(rule.expansion) == 1
    return Node(name, rule.alias or ("" if single or name.startswith("__") else name))


class Tables:
    """The tables of tree-sitter."""

    def __init__(self) -> None:
        rules = productions()
        analysis = LALR_Analyzer(ParserConf(rules, dict.fromkeys(rules), [FILE]))
        analysis.compute_lalr()
        table = analysis.parse_table
        self.terminals = sorted({s.name for rule in rules for s in rule.expansion if s.is_term} - {LINE_END})
        self.terminals += ["COMMENT", LINE_END, "INSIDE"]
        nodes = dict.fromkeys(node(rule) for rule in rules)
        self.nodes = sorted(nodes, key=lambda each: (each.origin, each.name))
        self.numbers: dict[object, int] = {END: 0}
        for each in (*self.terminals, *self.nodes):
            self.numbers[each] = len(self.numbers)
        self._by_origin = defaultdict(list)
        for each in self.nodes:
            self._by_origin[each.origin].append(each)
        first = table.start_states[FILE]
        last = table.end_states[FILE]
        order = _in_order(table.states, first)
        self._states = {state: number for number, state in enumerate(order, 1)}
        self._actions: dict[tuple[str, ...], int] = {("RECOVER",): 1, ("SHIFT_EXTRA",): 3}
        self._size = 5
        self.rows = [self._recovery(), *(self._row(table.states[state], accepts=state == last) for state in order)]
        begin = {name for name, word in keywords().items() if word in {*KEYWORDS} - GO_ON_BEHIND}
        self._behind_keywords = {
            self._states[argument]
            for actions in table.states.values()
            for name, (kind, argument) in actions.items()
            if kind is Shift and name in begin
        }
        self.most_children = max(len(rule.expansion) for rule in rules)

    def _action(self, text: str) -> int:
        if (text,) not in self._actions:
            self._actions[text,] = self._size
            self._size += 2
        return self._actions[text,]

    def _recovery(self) -> dict[int, int]:
        return dict.fromkeys(range(len(self.terminals) + 1), 1) | {self.numbers["COMMENT"]: 3}

    def _row(self, actions: Mapping[str, tuple[Any, Any]], *, accepts: bool) -> dict[int, int]:
        row = {self.numbers["COMMENT"]: 3}
        for name, (kind, argument) in sorted(actions.items()):
            if name in self._by_origin:
                row |= {self.numbers[each]: self._states[argument] for each in self._by_origin[name]}
            elif kind is not Shift:
                number = self.numbers[node(argument)]
                row[self.numbers[name]] = self._action(f"REDUCE({number}, {len(argument.expansion)})")
            elif name != END:
                row[self.numbers[name]] = self._action(f"SHIFT({self._states[argument]})")
        return row | {0: self._action("ACCEPT")} if accepts else row

    def text(self) -> str:
        """Return what `parser.c` is to hold."""
        return "\n".join((*self._lists(), *self._symbols(), *self._tables(), *self._end()))

    def _lists(self) -> Iterator[str]:
        words = keywords()
        priorities = {each.name: each.priority for each in parse_tables.parser(None).terminals}
        names = [name for name in sorted(words, key=lambda name: (-priorities[name], name)) if name in self.terminals]
        yield "// Made from grammar/policy.lark by `make reference`."
        yield '#include "abi.h"'
        yield "enum {"
        yield from (f"  WORD_{name} = {self.numbers[name]}," for name in self.terminals)
        yield "};"
        yield "typedef struct {\n  const char *text;\n  TSSymbol symbol;\n} Keyword;"
        yield f"#define FIRST_WORDS {sum(priorities[name] > 0 for name in names)}  // these come before names"
        yield "static const Keyword keywords[] = {"
        yield from (f'  {{"{words[name]}", WORD_{name}}},' for name in names)
        yield "  {0, 0},\n};"
        yield "static const Keyword signs[] = {"
        for name, sign in sorted(signs().items(), key=lambda each: (-len(each[1]), each)):
            yield f'  {{"{sign.replace("?", chr(92) + "?")}", WORD_{name}}},'
        yield "  {0, 0},\n};"
        patterns = {each.name: each.pattern.value for each in parse_tables.parser(None).terminals}
        yield _list("statement_words", KEYWORDS)
        yield _list("reserved_words", re.findall(r"[a-z]+", patterns["NAME"].partition(")")[0].removeprefix("(?!(?:")))
        yield _list("words_that_go_on", sorted(GO_ON_BEFORE - {"for cluster"}))
        yield _list("words_behind_a_name", BEHIND_A_NAME)
        for name in ("ONE", "DISTINCT"):
            listed = re.search(r"\(\?!\(\?:([a-z|]+)\)", patterns[name])
            assert listed is not None, patterns[name]
            yield _list(f"words_behind_{name.lower()}", listed[1].split("|"))

    def _symbols(self) -> Iterator[str]:
        shown = {**signs(), **keywords(), **NODES, END: "end", "INSIDE": ""}
        every = [END, *self.terminals, *self.nodes]
        names = [
            each.name or f"_{each.origin.lstrip('_')}" if isinstance(each, Node) else shown[each] for each in every
        ]
        first: dict[tuple[str, bool], int] = {}
        yield "static const char *const symbol_names[] = {"
        yield from (f'  "{name.replace("?", chr(92) + "?")}",' for name in names)
        yield "};"
        data, public = [], []
        for number, (each, name) in enumerate(zip(every, names, strict=True)):
            visible = bool(each.name) if isinstance(each, Node) else each not in (END, LINE_END, "INSIDE")
            named = isinstance(each, Node) or each in NODES or each == END
            data.append(f"{{{int(visible)}, {int(named)}, 0}},")
            public.append(str(first.setdefault((name, named), number)))
        yield f"static const TSSymbolMetadata symbol_metadata[] = {{\n  {_wrapped(data, '')}\n}};"
        yield _array("TSSymbol", "public_symbols", public)

    def _tables(self) -> Iterator[str]:
        valid_sets: dict[tuple[int, ...], int] = {}
        modes, groups, places = [], [], []
        terminals = range(len(self.terminals) + 1)
        for number, row in enumerate(self.rows):
            accepted = tuple(symbol for symbol in sorted(row) if symbol in terminals)
            if number in self._behind_keywords or self.numbers[LINE_END] in row:
                ends = 1
            else:  # between statements, or inside one
                ends = 0 if self.numbers["POLICY"] in row else 2
            modes.append(f"{{{valid_sets.setdefault(accepted, len(valid_sets))}, {ends}}},")
            by_value = defaultdict(list)
            for symbol, value in sorted(row.items()):
                by_value[value, symbol in terminals].append(symbol)
            if number > 0:
                places.append(len(groups))
                groups.append(len(by_value))
                for (value, _), symbols in by_value.items():
                    groups += [value, len(symbols), *symbols]
        yield "#define VALID(set, symbol) ((set)[(symbol) / 64] >> ((symbol) % 64) & 1)"
        yield f"static const uint64_t valid_words[][{len(self.terminals) // 64 + 1}] = {{"
        for accepted in valid_sets:
            parts = [sum(1 << s % 64 for s in accepted if s // 64 == p) for p in range(len(self.terminals) // 64 + 1)]
            yield f"  {{{', '.join(f'{part:#x}' for part in parts)}}},"
        yield "};"
        yield f"static const TSLexMode lex_modes[] = {{\n  {_wrapped(modes, '')}\n}};"
        whole = [str(self.rows[0].get(symbol, 0)) for symbol in range(len(self.numbers))]
        yield _array("uint16_t", "recovery_table", whole)
        yield _array("uint16_t", "parse_table", map(str, groups))
        yield _array("uint32_t", "parse_table_places", map(str, places))
        actions = ["ENTRY(0),", *(f"ENTRY(1), {action}," for (action,) in self._actions)]
        yield f"static const TSParseActionEntry parse_actions[] = {{\n  {_wrapped(actions, '')}\n}};"
        yield _array("TSStateId", "primary_states", map(str, range(len(self.rows))))
        yield "static const bool line_ends[][2] = {{0, 0}, {1, 0}, {0, 1}};"
        yield f"static const TSSymbol line_end_symbols[] = {{{self.numbers[LINE_END]}, {self.numbers['INSIDE']}}};"

    def _end(self) -> Iterator[str]:
        fields = {
            "version": 14,
            "symbol_count": len(self.numbers),
            "token_count": len(self.terminals) + 1,
            "external_token_count": 2,
            "state_count": len(self.rows),
            "large_state_count": 1,
            "production_id_count": 1,
            "max_alias_sequence_length": self.most_children,
            "parse_table": "recovery_table",
            "small_parse_table": "parse_table",
            "small_parse_table_map": "parse_table_places",
            "parse_actions": "parse_actions",
            "symbol_names": "symbol_names",
            "symbol_metadata": "symbol_metadata",
            "public_symbol_map": "public_symbols",
            "alias_map": "no_aliases",
            "alias_sequences": "no_aliases",
            "lex_modes": "lex_modes",
            "lex_fn": "lex",
            "external_scanner": "{line_ends[0], line_end_symbols, create, destroy, scan_line_end, keep, recall}",
            "primary_state_ids": "primary_states",
        }
        yield '#include "words.h"'
        yield f"static const uint16_t no_aliases[{self.most_children}] = {{0}};"
        yield "static const TSLanguage language = {"
        yield from (f"  .{name} = {value}," for name, value in fields.items())
        yield "};"
        yield '#ifdef _WIN32\n__declspec(dllexport)\n#else\n__attribute__((visibility("default")))\n#endif'
        yield "const TSLanguage *tree_sitter_policy(void) { return &language; }\n"


def highlights() -> str:
    """Return what the files `highlights.scm` are to hold; the captures are those that Helix, Neovim and Zed know."""
    words = {*keywords().values()} - {*CONSTANTS, "pod"}
    operators = {sign for sign in signs().values() if sign not in "()[],."}
    return "\n".join(
        (
            "; Made from grammar/policy.lark by `make reference`.",
            _query(words, "keyword"),
            _query(CONSTANTS, "constant.builtin"),
            _query(operators, "operator"),
            _query("()[]", "punctuation.bracket"),
            _query(",.", "punctuation.delimiter"),
            *(f"{node} @{capture}" for node, capture in CAPTURES),
            '((name) @variable.builtin (#any-of? @variable.builtin "node" "pod"))\n',
        )
    )


def _query(words: Iterable[str], capture: str) -> str:
    return f"[\n  {_wrapped((f'{chr(34)}{word}{chr(34)}' for word in sorted(words)), '')}\n] @{capture}"


def _wrapped(parts: Iterable[str], comma: str = ",") -> str:
    lines = [""]
    for part in parts:
        if len(lines[-1]) + len(part) > 115:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{part}{comma}"
    return "\n  ".join(lines)


def _array(kind: str, name: str, values: Iterable[str]) -> str:
    return f"static const {kind} {name}[] = {{\n  {_wrapped(values)}\n}};"


def _list(name: str, words: Iterable[str]) -> str:
    quoted = [f'"{word}"' for word in words]
    return f"static const char *const {name}[] = {{\n  {_wrapped([*quoted, '0'])}\n}};"


if __name__ == "__main__":
    PARSER.write_text(Tables().text(), encoding="utf-8")
    for file in HIGHLIGHTS:
        file.write_text(highlights(), encoding="utf-8")
