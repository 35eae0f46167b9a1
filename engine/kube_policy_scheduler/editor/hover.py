"""What a word of a policy means, as Markdown: statements, fields, functions, names with their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.editor import names
from kube_policy_scheduler.editor.project import Project
from kube_policy_scheduler.editor.queue_amounts import RecordedCluster, amounts_text
from kube_policy_scheduler.lang import syntax, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, queue_values_of, values_of
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.lang.environment import Environment, Field
from kube_policy_scheduler.lang.reading.parse_tokens import Token, keywords, tokens
from kube_policy_scheduler.lang.signature import Builtin
from kube_policy_scheduler.lang.statements import BY_KEYWORD, EXPRESSION_WORDS, Statement
from kube_policy_scheduler.lang.types import Info, Kind
from kube_policy_scheduler.times import duration_text
from kube_policy_scheduler.wording import one_line, plural, some

_UNBOUNDED = 1e12
"""Ranges that are wider say nothing to people."""
_LONGEST_CODE = 400
Clusters: TypeAlias = Callable[[], Iterable[RecordedCluster]]


@dataclass(frozen=True, slots=True)
class Hover:
    """A text about a span."""

    span: Span
    text: str
    """Markdown."""


def code(text: str) -> str:
    """Return a text as a block of the language."""
    return f"```policy\n{one_line(text, _LONGEST_CODE)}\n```"


def statement_text(statement: Statement) -> str:
    """Return what a statement does, with all its forms."""
    parts = []
    for form in statement.forms:
        point = f" *({form.extension_point})*" if form.extension_point else ""
        parts.append(f"{code(form.written)}\n{form.meaning}{point}\n\nExample: `{form.example}`")
    return "\n\n".join(parts)


def builtin_text(builtin: Builtin) -> str:
    """Return the signature and the manual of a function."""
    return f"{code(builtin.signature)}\n{builtin.doc}"


def field_text(field: Field, key: str | None = None) -> str:
    """Return the type, the unit and the manual of a field."""
    info = field.info(key)
    unit = "an amount of the resource" if field.gives.per_resource and key is None else type_text(info)
    return f"{code(field.written)}\n{unit}, {info.shape.value}\n\n{field.doc}"


def type_text(info: Info) -> str:
    """Return the type of a value, its range, and whether it can be missing."""
    parts = [str(info.type)]
    if info.type.kind is Kind.NUMBER and (info.low > -_UNBOUNDED or info.high < _UNBOUNDED):
        low = f"{info.low:g}" if info.low > -_UNBOUNDED else "…"
        high = f"{info.high:g}" if info.high < _UNBOUNDED else "…"
        parts.append(f"{low} to {high}")
    if info.words:
        parts.append(f"one of {', '.join(sorted(info.words))}")
    if info.maybe:
        parts.append("may be missing")
    return ", ".join(parts)


def definition_text(project: Project, source: str, name: str, definition: names.Occurrence) -> str:
    """Return the line of a definition, with the type of its value."""
    line = definition.statement.span.text if definition.statement is not None else name
    policy = project.policy_of(source)
    known = policy.definitions.get(name) if policy is not None else None
    value = known.value if known is not None else None
    kind = f"\n{type_text(value.info)}, {value.info.shape.value}" if value is not None else ""
    where = definition.span.source.name
    file = f"\n\nin `{where.rpartition('/')[2]}`" if where != source else ""
    return f"{code(line)}{kind}{file}"


def queue_text(project: Project, name: str, statement: syntax.Statement, clusters: Clusters = tuple) -> str:
    """Return a declaration, the queues above it and directly below it, its amounts, and what it uses in clusters."""
    queues = {queue.name: queue for queue in declared_queues(project.checked.policies)}
    above: list[str] = []
    queue = queues.get(name)
    while queue is not None and queue.tree.parent is not None and queue.tree.parent not in above:
        above.append(queue.tree.parent)
        queue = queues.get(queue.tree.parent)
    below = [each.name for each in queues.values() if each.tree.parent == name]
    parts = [code(statement.span.text)]
    if above:
        parts.append(f"below {', '.join(f'`{each}`' for each in above)}")
    if below:
        parts.append(f"{plural(len(below), 'queue')} below it: {some([f'`{each}`' for each in below])}")
    if amounts := amounts_text(project, name, clusters()):
        parts.append(amounts)
    return "\n\n".join(parts)


def hover(project: Project, name: str, offset: int, *, clusters: Clusters = tuple) -> Hover | None:
    """Return what is known of the word at an offset of a source; None where no word is.

    clusters: returns the recorded clusters beside the policies, asked only where they matter.
    """
    source = project.sources.get(name)
    if source is None:
        return None
    words = tokens(source)
    index = next((i for i, token in enumerate(words) if token.start <= offset < token.end), None)
    if index is None:
        index = next((i for i, token in enumerate(words) if token.end == offset), None)
    if index is None:
        return None
    token = words[index]
    text = _text(project, name, words, index, clusters)
    return Hover(Span(source, token.start, token.end), text) if text else None


def _text(project: Project, name: str, words: tuple[Token, ...], index: int, clusters: Clusters) -> str:
    token, environment = words[index], project.environment_of(name)
    symbol = names.symbol_at(project, name, token.start)
    if symbol is not None and symbol.definitions:
        if symbol.kind.is_value:
            return definition_text(project, name, symbol.name, symbol.definitions[0])
        if symbol.kind is names.NameKind.CLAUSE and symbol.definitions[0].statement is not None:
            return code(symbol.definitions[0].statement.span.text)
        if symbol.kind is names.NameKind.QUEUE and symbol.definitions[0].statement is not None:
            return queue_text(project, symbol.name, symbol.definitions[0].statement, clusters)
        if symbol.kind is names.NameKind.POLICY:
            return f"the policy `{symbol.name}`"
    if token.kind in keywords() and token.text in BY_KEYWORD and _begins(project, name, token):
        return statement_text(BY_KEYWORD[token.text])
    field = _field_at(environment, words, index)
    if field is not None:
        return field_text(*field)
    value = value_at(project, name, token.start)
    card = _card_text(value)
    called = index + 1 < len(words) and words[index + 1].kind == "LPAR"
    if token.kind == "NAME" and called and token.text in environment.builtins:
        return "\n\n".join(filter(None, (builtin_text(environment.builtins[token.text]), card)))
    if token.kind == "STRING" and card:
        return card
    if value is not None and token.kind in ("NAME", "POD", "MEMBER", "NUMBER", "RPAR", "LPAR"):
        return f"{code(value.span.text)}\n{type_text(value.info)}, {value.info.shape.value}"
    return _part_text(project, name, token)


def _card_text(value: typed.Typed | None) -> str:
    """Return what the card of a trained model says, if that is what is called; "" where there is none."""
    if not isinstance(value, typed.Apply) or value.builtin.words.card is None:
        return ""
    card = value.builtin.words.card(*(constant for _, constant in value.constants))
    if card is None:
        return ""
    rows = f" on {card.rows:,} decisions" if card.rows else ""
    lines = [f"trained{rows}, with these inputs:", ""]
    lines += [f"- `{each.name}`: {each.low:g} to {each.high:g}" for each in card.inputs]
    if card.outcome is not None:
        predicts = f"`{card.outcome.query}`, {duration_text(card.outcome.after_seconds)} after the decision"
        lines += ["", f"predicts {predicts}; mean error {card.outcome.mean_absolute_error:g}"]
    return "\n".join(lines)


def _part_text(project: Project, name: str, token: Token) -> str:
    """Return the forms of the statement of which a word is a part; "": it is none, or a word of expressions."""
    if token.kind not in keywords() or token.text in EXPRESSION_WORDS:
        return ""
    spans = (each.span for each in project.files[name].statements)
    span = next((each for each in spans if each.start <= token.start < each.end), None)
    statement = BY_KEYWORD.get(span.text.split(maxsplit=1)[0]) if span is not None else None
    if statement is None:
        return ""
    parts = (*statement.clauses, *statement.joins, *statement.words)
    return statement_text(statement) if token.text in " ".join(parts).split() else ""


def _begins(project: Project, name: str, token: Token) -> bool:
    return any(statement.span.start == token.start for statement in project.files[name].statements)


def _field_at(environment: Environment, words: tuple[Token, ...], index: int) -> tuple[Field, str | None] | None:
    """Return the field of which the word at an index is a part, and its key if the word is that."""
    first = index
    while first >= 2 and words[first - 1].kind == "DOT" and words[first - 2].kind in ("NAME", "POD", "MEMBER"):
        first -= 2
    last = index
    while last + 2 < len(words) and words[last + 1].kind == "DOT" and words[last + 2].kind == "MEMBER":
        last += 2
    steps = [token.text for token in words[first : last + 1 : 2]]
    subject = _subject(words, first)
    if subject == "pod" and len(steps) > 2 and steps[1] == "node":  # of the node of an existing pod
        subject, steps = "node", steps[1:]
    if not subject or len(steps) < 2:
        return None
    for length in (3, 2):
        field = environment.every_field.get(".".join((subject, *steps[1:length])))
        if field is not None and len(steps) >= length:
            key = steps[length] if field.key is not None and len(steps) > length else None
            return field, key
    return None


def _subject(words: tuple[Token, ...], first: int) -> str:
    root = words[first].text
    return names.subject_of(root, words[: first + 1])


def value_at(project: Project, name: str, offset: int) -> typed.Typed | None:
    """Return the smallest expression at an offset whose type is known."""
    policy = project.policy_of(name)
    if policy is None:
        return None
    best: typed.Typed | None = None
    for root in _roots(policy):
        for value in typed.below(root):
            span = value.span
            if span.source.name != name or not span.start <= offset < span.end or value.info.type.kind is Kind.UNKNOWN:
                continue
            if best is None or span.end - span.start <= best.span.end - best.span.start:
                best = value
    return best


def _roots(policy: CheckedPolicy) -> list[typed.Typed]:
    found = [value for clause in policy.clauses for value in values_of(clause)]
    found += queue_values_of(policy)
    found += [each.value for each in policy.definitions.values() if each.value is not None]
    return [*found, policy.governs] if policy.governs is not None else found
