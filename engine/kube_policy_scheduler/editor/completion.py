"""What can be written at a place of a policy.

The grammar says which words are possible (`parse_tokens.slot_after`), the registries say which names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from kube_policy_scheduler.builtins.times import zone_named
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.editor import names
from kube_policy_scheduler.editor.cluster_words import ClusterWords
from kube_policy_scheduler.editor.hover import builtin_text, definition_text, field_text, statement_text
from kube_policy_scheduler.editor.possible import Beginning, aggregates_there, beginning, builtins_there, fields_there
from kube_policy_scheduler.editor.project import Project
from kube_policy_scheduler.lang.checked import COUNTED
from kube_policy_scheduler.lang.environment import OF_PODS, OF_WORKLOADS, Environment, Field, Key
from kube_policy_scheduler.lang.expressions import AGGREGATES
from kube_policy_scheduler.lang.load import SUFFIX
from kube_policy_scheduler.lang.reading.parse_tokens import Slot, Token, keywords, slot_after, statement_before
from kube_policy_scheduler.lang.signature import Builtin
from kube_policy_scheduler.lang.statements import BY_KEYWORD, CLAUSE_SUBJECTS, CLAUSES, WORKLOADS, Statement
from kube_policy_scheduler.lang.types import RESOURCE_WORDS, Depends
from kube_policy_scheduler.wording import plural

MOST_ITEMS = 500
_COMPLETE = frozenset({"true", "false", "missing", "strict", "asc", "desc", "never"})
"""Words behind which no space is needed."""
_WORD = re.compile(r"[A-Za-z0-9_]*$")
_KEY_WORD = re.compile(r"[A-Za-z0-9_./-]*$")
_OPEN_STRING = re.compile(r'"(?:[^"\\]|\\.)*("|$)')
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ItemKind(Enum):
    """What a proposal is; editors show a picture for each."""

    KEYWORD = "keyword"
    FUNCTION = "function"
    FIELD = "field"
    VARIABLE = "variable"
    VALUE = "value"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Item:
    """One proposal."""

    label: str
    kind: ItemKind
    start: int
    """Offset from which the text replaces what is written, up to the place."""
    text: str = ""
    """What is written; "": the label. `$0` is where the cursor goes."""
    detail: str = ""
    """One line beside the label: the signature, the type."""
    doc: str = ""
    """Markdown."""
    rank: int = 5
    """Those with lower ranks come first."""


@dataclass(frozen=True, slots=True)
class _Place:
    project: Project
    name: str
    words: ClusterWords
    offset: int
    start: int
    """Of the word that is being written."""
    slot: Slot
    line: str = ""
    """The statement up to the place."""

    def beginning(self, start: int) -> Beginning:
        """Return the statement up to an offset in it, where a value begins."""
        rest = self.project.sources[self.name].text[self.offset : self.offset + 500].partition("\n")[0]
        return beginning(self.line[:start], self.before, rest)

    @property
    def environment(self) -> Environment:
        if len(self.before) > 1 and self.before[1].kind == "WORKLOADS":  # the line that says what it is about
            return self.project.environment.of(WORKLOADS)
        return self.project.environment_of(self.name)

    @property
    def before(self) -> tuple[Token, ...]:
        return self.slot.before

    def last(self, back: int = 1) -> str:
        """Return the terminal of a token before the place; "" where there is none."""
        return self.before[-back].kind if len(self.before) >= back else ""

    def text(self, back: int = 1) -> str:
        """Return a token before the place."""
        return self.before[-back].text if len(self.before) >= back else ""


def complete(project: Project, name: str, offset: int, words: ClusterWords) -> tuple[Item, ...]:
    """Return what can be written at an offset of a source, the most likely first."""
    source = project.sources.get(name)
    if source is None:
        return ()
    inside = _inside_string(source, offset)
    if inside is not None:
        return _best(_in_string(project, name, words, offset, *inside))
    written = _WORD.search(source.text[max(0, offset - 300) : offset])
    start = offset - len(written[0] if written else "")
    if start < offset and source.text[start].isdigit() and not _is_key(source, start):
        return ()
    line = statement_before(source, start)
    if line is None:
        return ()
    slot = slot_after(line.text)
    if slot.kind in ("LABEL_KEY", "LABEL_VALUE", "OBJECT_NAME") or not slot.accepts:
        key = _KEY_WORD.search(source.text[max(0, offset - 300) : offset])
        start = offset - len(key[0] if key else "")
        line = statement_before(source, start)
        if line is None:
            return ()
        slot = slot_after(line.text)
    return _best(_items(_Place(project, name, words, offset, start, slot, line.text)))


def _is_key(source: Source, start: int) -> bool:
    """Return whether what is written is behind a sign of keys and values of labels."""
    return source.text[max(0, start - 1) : start] in ("-", ".", "/", "=")


def _best(items: Iterable[Item]) -> tuple[Item, ...]:
    found: dict[str, Item] = {}
    for item in items:
        known = found.get(item.label)
        if known is None or item.rank < known.rank:
            found[item.label] = item
    return tuple(sorted(found.values(), key=lambda item: (item.rank, item.label))[:MOST_ITEMS])


def _items(at: _Place) -> Iterator[Item]:
    slot = at.slot
    if not at.before:
        if not at.line.strip():  # behind the first word of an unknown statement, nothing is known
            yield from _statements(at)
        return
    yield from _keywords(at)
    match slot.kind:
        case "MEMBER":
            yield from _members(at)
        case "NAME" | "POD":
            yield from _names(at)
        case "LABEL_KEY":
            yield from _label_keys(at)
        case "LABEL_VALUE":
            yield from _label_values(at)
        case "OBJECT_NAME" if at.last() == "OF":
            known = names.queue_names if at.before[0].kind == "QUEUE" else names.policy_names
            yield from (Item(each, ItemKind.VALUE, at.start) for each in known(at.project))
        case _:
            return


def _statements(at: _Place) -> Iterator[Item]:
    subject = at.environment.subject
    for keyword, statement in BY_KEYWORD.items():
        if subject is OF_WORKLOADS and subject.name not in statement.subjects:
            continue
        written = statement.forms[0].written
        opening = (statement.opening if statement.opening.replace(" ", "").isalpha() else "") or keyword
        second = statement.forms[0].example.split()[1] if len(statement.forms[0].example.split()) > 1 else ""
        if second in statement.joins:
            opening = f"{keyword} {second}"
        yield Item(
            keyword, ItemKind.KEYWORD, at.start, f"{opening} ", detail=written, doc=statement_text(statement), rank=1
        )


def _keywords(at: _Place) -> Iterator[Item]:
    """Yield the words of the grammar that are possible: of clauses those that the statement takes and does not have."""
    statement = BY_KEYWORD.get(at.text(len(at.before)))
    if statement is None:
        return
    clauses_by_word: dict[str, list[str]] = {}
    for clause in CLAUSES:
        clauses_by_word.setdefault(clause.split()[0], []).append(clause)
    words = (*statement.joins, *statement.words, *statement.behind.values())
    own = {word for join in words for word in join.split()}
    behind_a_value = "PLUS" in at.slot.accepts or "$END" in at.slot.accepts
    for terminal in sorted(at.slot.accepts):
        word = keywords().get(terminal)
        if word is None or word == "pod":  # a name, like `node`
            continue
        if behind_a_value and word in clauses_by_word:
            for clause in clauses_by_word[word]:
                if clause in statement.clauses and not _has(at.before, clause) and _is_allowed(at, statement, clause):
                    yield Item(clause, ItemKind.KEYWORD, at.start, f"{clause} ", CLAUSES[clause], rank=3)
            if word not in own:
                continue
        alone = word in _COMPLETE
        yield Item(word, ItemKind.KEYWORD, at.start, word if alone else f"{word} ", rank=4)


def _is_allowed(at: _Place, statement: Statement, clause: str) -> bool:
    """Return whether no clause that is written already excludes another one."""
    if CLAUSE_SUBJECTS.get(clause, at.environment.subject.name) != at.environment.subject.name:
        return False
    pairs = ((one, other) for one, others in statement.apart.items() for other in others)
    excluded = [two for two in pairs if clause in two]
    return not any(_has(at.before, each) for two in excluded for each in two if each != clause)


def _has(before: Sequence[Token], clause: str) -> bool:
    """Return whether a clause is written already."""
    written = [token.text for token in before[1:]]
    wanted = clause.split()
    return any(written[i : i + len(wanted)] == wanted for i in range(len(written)))


# --- names -----------------------------------------------------------------------------------------------


def _names(at: _Place) -> Iterator[Item]:
    environment, last = at.environment, at.last()
    first = at.text(len(at.before))
    match (first, last):
        case ("ties", "BY"):
            yield from (Item(each, ItemKind.VALUE, at.start, rank=1) for each in environment.ties)
            return
        case ("devices", "BY"):
            yield from (Item(each, ItemKind.VALUE, at.start, rank=1) for each in environment.devices)
        case ("use", _):
            scores = any(token.kind == "SCORES" for token in at.before)
            plugins = environment.scores if scores else environment.plugins
            yield from (Item(each, ItemKind.VALUE, at.start, rank=1) for each in sorted(plugins))
            return
        case ("metric", "ASSIGN"):
            for each in environment.queries.values():
                yield _function(each, at, rank=1)
            yield from (
                _function(each, at, rank=1) for each in environment.builtins.values() if each.depends & Depends.SIGNAL
            )
            return
        case (_, "COUNTING") | (_, "COMMA") if any(token.kind == "COUNTING" for token in at.before):
            yield from (Item(each, ItemKind.VALUE, at.start, rank=1) for each in COUNTED)
            return
        case ("let" | "def" | "metric", "LET" | "DEF" | "METRIC"):
            return  # a new name
        case (_, "FOR"):
            return
        case _:
            pass
    here = at.beginning(len(at.line))
    if last == "IN" and any(token.kind in ("FOR", "LPAR") for token in at.before):
        detail = f"{' and '.join(environment.subject.collections)} of the domain"
        for topology in _domains(environment):
            yield Item(topology, ItemKind.VARIABLE, at.start, f"{topology}.", detail, rank=1)
        if environment.members is not None:
            row = environment.subject.row
            detail = f"{' and '.join(environment.members.subject.collections)} of the {row}"
            yield Item(row, ItemKind.VARIABLE, at.start, f"{row}.", detail, rank=1)
    own = at.before[1].text if first in ("let", "def", "metric") else ""
    for name, definition in names.definitions(at.project, at.name).items():
        if name == own:
            continue
        shown = definition_text(at.project, at.name, name, definition)
        call = f"{name}($0)" if definition.kind is names.NameKind.DEF else ""
        kind = ItemKind.FUNCTION if definition.kind is names.NameKind.DEF else ItemKind.VARIABLE
        yield Item(name, kind, at.start, call, definition.kind.value if definition.kind else "", shown, rank=1)
    for name in at.project.files[at.name].unread_names - {own}:
        yield Item(name, ItemKind.VARIABLE, at.start, detail="its definition has an error", rank=2)
    for name in _bound(at) if last != "IN" else ():
        yield Item(name, ItemKind.VARIABLE, at.start, f"{name}.", rank=0)
    for root in dict.fromkeys(path.partition(".")[0] for path in environment.fields):
        own_fields = [each for each in environment.fields.values() if each.path.startswith(f"{root}.")]
        if fields_there(here, root, own_fields, environment):
            yield Item(root, ItemKind.VARIABLE, at.start, f"{root}.", f"fields of the {root}", rank=2)
    yield from _bare_fields(at, here)
    parameter = _open_call(at.before)
    if parameter is not None and parameter[0].text in environment.builtins:
        called = environment.builtins[parameter[0].text]
        for one in called.parameters:
            if one.named_only:
                yield Item(f"{one.name}=", ItemKind.VARIABLE, at.start, detail=str(one), rank=1)
            if one.takes.word:
                yield from (Item(word, ItemKind.VALUE, at.start, rank=1) for word in RESOURCE_WORDS)
    possible = builtins_there(here, environment.builtins.values(), environment)
    yield from (_function(each, at) for each in environment.builtins.values() if each.name in possible)
    over = "p in node.pods" if environment.subject is OF_PODS else "c in fleet.clusters"
    for function in sorted(AGGREGATES) if aggregates_there(here, environment) else ():
        yield Item(function, ItemKind.FUNCTION, at.start, f"{function}($0)", f"{function}(… for {over})", rank=3)


def _function(each: Builtin, at: _Place, rank: int = 3) -> Item:
    text = f"{each.name}($0)" if each.parameters else f"{each.name}()"
    return Item(each.name, ItemKind.FUNCTION, at.start, text, each.signature, builtin_text(each), rank)


def _bound(at: _Place) -> Iterator[str]:
    """Yield the names that aggregates and `def` give before the place."""
    words = at.before
    if at.text(len(words)) == "def":
        for token in words[3:]:
            if token.kind == "RPAR":
                break
            if token.kind == "NAME":
                yield token.text
    for before, name, after in zip(words, words[1:], words[2:], strict=False):
        if name.kind == "NAME" and after.kind == "IN" and before.kind in ("LPAR", "FOR", "DISTINCT"):
            yield name.text
    if any(token.kind == "EVICT" for token in words):
        yield "victim"


def _open_call(words: Sequence[Token]) -> tuple[Token, int] | None:
    """Return the name of the innermost call that is open at the end, and the number of commas behind it."""
    depth = commas = 0
    for index in range(len(words) - 1, -1, -1):
        kind = words[index].kind
        if kind in ("RPAR", "RSQB"):
            depth += 1
        elif kind in ("LPAR", "LSQB"):
            if depth == 0:
                if kind == "LPAR" and index and words[index - 1].kind == "NAME":
                    return words[index - 1], commas
                return None
            depth -= 1
        elif kind == "COMMA" and depth == 0:
            commas += 1
    return None


def open_call(project: Project, name: str, offset: int) -> tuple[Builtin, int] | None:
    """Return the function whose arguments are being written at an offset, and the number of the argument."""
    source = project.sources.get(name)
    line = statement_before(source, offset) if source is not None else None
    if line is None:
        return None
    text = line.text
    opened = [match for match in _OPEN_STRING.finditer(text) if not match[1]]
    if opened:
        text = text[: opened[-1].start()]
    found = _open_call(slot_after(text).before)
    if found is None:
        return None
    called = project.environment.builtins.get(found[0].text) or project.environment.queries.get(found[0].text)
    return (called, found[1]) if called is not None else None


# --- fields ----------------------------------------------------------------------------------------------


def _members(at: _Place) -> Iterator[Item]:
    path = names.path_before(at.before)
    if not path:
        return
    environment = at.environment
    if path[0] in _domains(environment) and len(path) == 1:
        rows = environment.subject.rows
        for collection in environment.subject.collections:
            if collection != rows or environment.topologies.get(path[0], "") is not None:
                yield Item(collection, ItemKind.FIELD, at.start, detail=f"the {collection} of the {path[0]}", rank=4)
    if environment.members is not None and path == (environment.subject.row,):
        for collection in environment.members.subject.collections:
            detail = f"the {collection} of the {path[0]}, where they are read"
            yield Item(collection, ItemKind.FIELD, at.start, detail=detail, rank=4)
    here = at.beginning(at.before[-2 * len(path)].start)
    for root, subject in _subjects(at, path[0]):
        steps = path if not root else path[1:]
        if root and subject == "pod" and steps and steps[0] == "node":
            yield from _fields_below(at, here, f"{root}.node", "node", steps[1:])
            continue
        yield from _fields_below(at, here, root, subject, steps)
        if not root or subject != "pod" or steps:
            continue
        if fields_there(here, f"{root}.node", [environment.every_field["node.name"]], environment):
            yield Item("node", ItemKind.FIELD, at.start, "node.", "the fields of the node of the pod", rank=1)


def _domains(environment: Environment) -> tuple[str, ...]:
    """Return what aggregates go over: the topologies, and all together; a cluster has no clusters of its own."""
    subject = environment.subject
    known = (name for name in environment.topologies if name != OF_WORKLOADS.row or subject is OF_PODS)
    return (*known, subject.everything)


def _subjects(at: _Place, name: str) -> Iterator[tuple[str, str]]:
    """Yield what a path may be about that begins with a name: how it is written, and `pod` or `node`."""
    known = names.subject_of(name, at.before) or _subject_behind(at, name)
    if known:
        yield name, known
    elif any(path.startswith(f"pod.{name}") for path in at.environment.fields) and _is_bare(at):
        yield "", "pod"
    elif name not in at.environment.topologies and name != "cluster":
        yield from ((name, subject) for subject in reversed(at.environment.subject.roots) if _in_aggregate(at))


def _in_aggregate(at: _Place) -> bool:
    """Return whether the innermost open call is an aggregate."""
    call = _open_call(at.before)
    return call is not None and call[0].text in AGGREGATES


def _is_bare(at: _Place) -> bool:
    """Return whether fields of pods are written without a name: `limit sum(request.cpu)`."""
    return at.text(len(at.before)) == "limit"


def _bare_fields(at: _Place, here: Beginning) -> Iterator[Item]:
    """Yield the fields of pods that are written without a name before them."""
    if not _is_bare(at):
        return
    own = [
        each for each in at.environment.fields.values() if each.path.startswith(f"{at.environment.subject.decided}.")
    ]
    for path in sorted(fields_there(here, "", own, at.environment)):
        field, (_, head, *more) = at.environment.fields[path], path.split(".")
        text = f"{head}." if more or field.key is not None else ""
        yield Item(head, ItemKind.FIELD, at.start, text, _field_detail(field), field_text(field), rank=1)


def _fields_below(at: _Place, here: Beginning, root: str, subject: str, steps: Sequence[str]) -> Iterator[Item]:
    """Yield the fields, or the keys of a field, that can be read at a place behind the steps of a path."""
    environment = at.environment
    prefix = ".".join((subject, *steps))
    fields = environment.every_field
    found = fields.get(prefix)
    own = [found] if found is not None and found.key is not None else []
    own = own or [each for each in fields.values() if each.path.startswith(f"{prefix}.")]
    possible = fields_there(here, root, own, environment)
    if found is not None and found.key is not None:
        if found.path in possible:
            yield from _keys_of(found, at, subject)
        return
    for field in own:
        if field.path in possible:
            rest = field.path[len(prefix) + 1 :]
            head = rest.partition(".")[0]
            more = f"{head}." if rest != head or (field.key is not None and rest == head) else ""
            yield Item(head, ItemKind.FIELD, at.start, more, _field_detail(field), field_text(field), rank=1)


def _subject_behind(at: _Place, root: str) -> str:
    """Return what a name is that its aggregate says behind it: `sum(n.free.cpu for n in cluster.nodes)`."""
    source = at.project.sources[at.name]
    rest = source.text[at.offset : at.offset + 500].partition("\n")[0]
    match = re.search(rf"\bfor[ \t]+{re.escape(root)}[ \t]+in[ \t]+[\w.()\"/-]*?\.(pods|nodes|clusters)\b", rest)
    return {"pods": "pod", "nodes": "node", "clusters": "cluster"}[match[1]] if match else ""


def _field_detail(field: Field) -> str:
    info = field.info("cpu" if field.key is Key.RESOURCE else None)
    unit = "an amount" if field.gives.per_resource else str(info.type)
    return f"{field.written}: {unit}{', may be missing' if info.maybe else ''}"


def _keys_of(field: Field, at: _Place, subject: str) -> Iterator[Item]:
    """Yield the keys of a field behind a dot; those that are no words go into brackets."""
    match field.key:
        case Key.RESOURCE:
            yield from (Item(word, ItemKind.FIELD, at.start, rank=1) for word in RESOURCE_WORDS)
            known: Mapping[str, object] = at.words.resources
        case Key.LABEL:
            known = at.words.labels_of(subject)
        case Key.ANNOTATION:
            known = at.words.pod_annotations if subject == "pod" else {}
        case _:
            known = dict.fromkeys((*_CONDITIONS, *field.key_words, *at.words.conditions), ())
    for key in known:
        if _PLAIN_KEY.fullmatch(key):
            yield Item(key, ItemKind.FIELD, at.start, detail=_seen(known[key]), rank=1)
        else:  # in the place of the dot
            yield Item(key, ItemKind.FIELD, at.start - 1, f'["{key}"]', _seen(known[key]), rank=2)


_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
"""The conditions that every node has."""


def _seen(values: object) -> str:
    if not isinstance(values, Mapping) or not values:
        return ""
    shown = ", ".join(sorted(values)[:5])
    return f"{plural(len(values), 'value')}: {shown}{', …' if len(values) > 5 else ''}"


_QUOTAS = ("cpu", "memory", "pods", "ephemeral-storage")


def _label_keys(at: _Place) -> Iterator[Item]:
    """Yield topologies and label keys."""
    if any(token.kind in ("MIN", "MAX", "LEND") for token in at.before) and at.before[0].kind == "QUEUE":
        known_resources = dict.fromkeys((*_QUOTAS, *at.words.resources))
        yield from (Item(each, ItemKind.VALUE, at.start, f"{each} ", rank=1) for each in known_resources)
        return
    if at.last() in ("OVER", "ONE", "OR"):
        for topology in at.environment.topologies:
            detail = at.environment.topologies[topology] or "each node"
            yield Item(topology, ItemKind.VALUE, at.start, detail=detail, rank=1)
        known = at.words.node_labels
    elif at.last() == "BY" and at.text(len(at.before)) == "metric":
        return
    elif at.last() == "OF" or (at.last() == "LABEL" and at.last(2) == "POD"):
        known = at.words.pod_labels
    else:
        known = at.words.node_labels
    yield from (Item(key, ItemKind.VALUE, at.start, detail=_seen(values), rank=2) for key, values in known.items())


def _label_values(at: _Place) -> Iterator[Item]:
    key = next((token for token in reversed(at.before) if token.kind in ("LABEL_KEY", "STRING")), None)
    if any(token.kind == "TARGET" for token in at.before):
        over = [b for a, b in pairwise(at.before) if a.kind == "OVER"]
        key = over[0] if over else key
    if key is None:
        return
    text = key.text.strip('"')
    text = at.environment.topologies.get(text) or text
    before = at.before[: at.before.index(key)]
    of_pod = len(before) > 1 and (before[-2].kind == "POD" or before[-1].kind == "OF")
    known = (at.words.pod_labels if of_pod else at.words.node_labels).get(text, {})
    for value, count in known.items():
        yield Item(value, ItemKind.VALUE, at.start, detail=plural(count, "pod" if of_pod else "node"), rank=1)


# --- strings ---------------------------------------------------------------------------------------------


def _inside_string(source: Source, offset: int) -> tuple[int, str] | None:
    """Return where the text in quotes begins in which an offset is, and the statement before it."""
    line = statement_before(source, offset)
    if line is None:
        return None
    for match in _OPEN_STRING.finditer(line.text):
        if not match[1]:
            return line.start + match.start() + 1, line.text[: match.start()]
    return None


def _in_string(
    project: Project, name: str, words: ClusterWords, offset: int, start: int, before: str
) -> Iterator[Item]:
    slot = slot_after(before)
    tokens = slot.before
    at = _Place(project, name, words, offset, start, slot)
    if not tokens:
        return
    if tokens[-1].kind == "USE":
        folder = name.rpartition("/")[0]
        for other in project.sources:
            if other != name and other.rpartition("/")[0] == folder and other.endswith(SUFFIX):
                yield Item(other.rpartition("/")[2], ItemKind.FILE, start, rank=1)
        return
    call = _open_call(tokens)
    if call is not None:
        called = project.environment.builtins.get(call[0].text) or project.environment.queries.get(call[0].text)
        if call[0].text == "domain":
            yield from (Item(key, ItemKind.VALUE, start, detail=_seen(v)) for key, v in words.node_labels.items())
        elif called is not None and called.depends & Depends.SIGNAL:
            yield from (Item(query, ItemKind.VALUE, start, detail="a metric") for query in words.metrics)
        elif called is not None and _takes_zone(called, call[1]):
            typed = project.sources[name].text[start:offset].lower()  # there are more zones than items
            yield from (Item(zone, ItemKind.VALUE, start) for zone in words.time_zones if typed in zone.lower())
        elif called is not None and any(each.takes.word for each in called.parameters):
            yield from (Item(resource, ItemKind.VALUE, start) for resource in words.resources)
    if tokens[-1].kind == "LSQB" and len(tokens) > 1:
        path = names.path_before((*tokens[:-1], Token("DOT", ".", 0, 0)))
        subject = names.subject_of(path[0], tokens) if path else ""
        field = at.environment.every_field.get(".".join((subject, *path[1:]))) if path else None
        if field is not None:
            yield from (replace(item, text=item.label, start=start) for item in _keys_of(field, at, subject))
    yield from _compared(at, tokens)


def _takes_zone(called: Builtin, position: int) -> bool:
    """Return whether the argument at a position is a time zone."""
    return position < len(called.parameters) and called.parameters[position].takes.prepare is zone_named


def _compared(at: _Place, tokens: Sequence[Token]) -> Iterator[Item]:
    """Yield the values that what stands on the left of a comparison can have."""
    index = len(tokens) - 1
    while index >= 0 and tokens[index].kind in ("LSQB", "COMMA", "STRING"):
        index -= 1
    if index < 1 or tokens[index].kind not in ("EQ", "NE", "IN"):
        return
    index -= 2 if tokens[index - 1].kind == "NOT" else 1
    left = tokens[: index + 1]
    if left and left[-1].kind == "RSQB" and len(left) > 3 and left[-2].kind == "STRING":
        key, path = left[-2].text.strip('"'), names.path_before((*left[:-3], Token("DOT", ".", 0, 0)))
    else:
        whole = names.path_before((*left, Token("DOT", ".", 0, 0)))
        key, path = (whole[-1], whole[:-1]) if whole else ("", ())
    if not path:
        return
    subject = names.subject_of(path[0], tokens)
    field = at.environment.every_field.get(".".join((subject, *path[1:])))
    if field is not None and field.key is Key.LABEL:
        known = at.words.labels_of(subject).get(key, {})
        yield from (Item(value, ItemKind.VALUE, at.start, detail=plural(n, subject)) for value, n in known.items())
        return
    field = (
        field
        if field is not None and field.key is not None
        else at.environment.every_field.get(".".join((subject, *path[1:], key)))
    )
    if field is not None:
        possible = field.info(key).words or ()
        yield from (Item(value, ItemKind.VALUE, at.start) for value in sorted(possible))
        if field.path == "node.zone":
            zones = at.words.node_labels.get(at.environment.topologies.get("zone") or "", {})
            yield from (Item(value, ItemKind.VALUE, at.start) for value in zones)
