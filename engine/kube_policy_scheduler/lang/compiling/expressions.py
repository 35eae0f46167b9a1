"""Typed tree to one callable over columns. The callable takes a frame; it keeps what functions make of texts.

What is one value per decision is a Python number, bool or str; what is one per node is an array `[rows]`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias, assert_never

import msgspec
import numpy as np

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checking import intervals
from kube_policy_scheduler.lang.checking.units import constant_number
from kube_policy_scheduler.lang.compiling.columns import (
    ABSENT_LIST,
    FALSE,
    MISSING,
    TRUE,
    KeptTable,
    are_absent,
    as_texts,
    by_value,
    contained_in_lists,
    contained_number,
    contained_text,
    divide,
    finite,
    full,
    is_nan,
    list_rows,
    map_texts,
    of_rows_asked,
    remainder,
    same_text,
    select_text,
    texts_of,
    to_kleene,
)
from kube_policy_scheduler.lang.compiling.member_values import MemberValue
from kube_policy_scheduler.lang.compiling.reductions import nothing, reduced
from kube_policy_scheduler.lang.environment import (
    CapturingFrame,
    Lists,
    Members,
    NodeFold,
    OnNodes,
    Pods,
    PodsRead,
    StateReads,
    Texts,
)
from kube_policy_scheduler.lang.signature import Receives
from kube_policy_scheduler.lang.types import TEXT_KINDS, Depends, Info, Kind, Shape
from kube_policy_scheduler.lang.versions import version_key
from kube_policy_scheduler.wording import one_line

MOST_THRESHOLDS = 16
"""Durations with which one aggregate compares the running time of pods, so counts are updated with the pods."""
MOST_TEXT = 120
"""Characters of an aggregate over a member, where people are told of it."""
MOST_RESTARTS = 4
"""The same for numbers of restarts. Each template is tried with every combination."""
Evaluate: TypeAlias = Callable[[Any], Any]
"""From a frame (or an `Item`) to a value."""

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Compiler:
    """Compiles the expressions of one policy; shared parts become shared callables."""

    def __init__(self, pods: Pods, device_order: Any = None) -> None:
        self.pods = pods
        self._device_order = device_order
        """Of the policy; None: the default."""
        self._made: dict[int, Evaluate] = {}
        self._keep: list[typed.Typed] = []
        self.pods_read: list[PodsRead] = []
        """What the aggregates that were compiled read of pods, if that is the same whichever pod is decided."""
        self._captures: list[typed.Typed] | None = None
        """Inside an aggregate: the parts that follow from the decision alone."""
        self.of_texts: list[OfText] = []
        """What was compiled that follows from one text of each node alone."""
        self._is_of_text = False
        """Inside of that."""
        self._member_values: dict[int, MemberValue] = {}

    def compile(self, value: typed.Typed) -> Evaluate:
        """Return the callable of an expression.

        Numbers come with NaN for missing, truth as bool or, where `value.info.maybe`, coded as in `columns`.
        """
        captures = self._captures is not None and value.info.shape is Shape.DECISION
        if captures and not isinstance(value, typed.Constant) and not typed.free(value):
            return self._captured(value)
        made = self._made.get(id(value))
        if made is None:
            read = None if self._is_of_text else _text_read(value)
            made = self._made[id(value)] = self._compile(value) if read is None else self._of_text(value, read)
            self._keep.append(value)  # an id is valid only while its object lives
        return made

    def member_value(self, value: typed.MemberAggregate) -> MemberValue:
        """Return what an aggregate over the nodes or pods of each cluster asks of one: the same each time."""
        found = self._member_values.get(id(value))
        if found is None:
            found = self._member_values[id(value)] = MemberValue(
                one_line(value.span.text, MOST_TEXT),
                Compiler(self.pods).compile(value.inside),
                is_truth=value.info.type.kind is Kind.TRUTH,
                is_coded=value.inside.info.maybe,
            )
            self._keep.append(value)
        return found

    def _captured(self, value: typed.Typed) -> Evaluate:
        assert self._captures is not None
        position = len(self._captures)
        self._captures.append(value)
        return lambda item: item.captured[position]

    def _compile(self, value: typed.Typed) -> Evaluate:
        match value:
            case typed.Constant(value=constant):
                return lambda frame: constant
            case typed.Read() if self._is_of_text:
                return lambda frame: frame.texts
            case typed.Read(info=info, field=field, key=key) if info.shape is Shape.ITEM and field.shape is Shape.NODE:
                return partial(
                    _read_of_its_node, field.read, () if key is None else (key,), _ABSENT.get(info.type.kind)
                )
            case typed.Read(field=field, key=None):
                return field.read
            case typed.Read(field=field, key=key):
                read = field.read
                return lambda frame: read(frame, key)
            case typed.Reference(value=inner):
                return self.compile(inner)
            case typed.Apply(arguments=arguments):
                call = apply_call(value, [self.compile(argument) for argument in arguments])
                order = self._device_order
                if order is None or value.builtin.receives is not Receives.DEVICE_ORDER:
                    return call
                return lambda frame: call(frame.ordered(order))
            case typed.Negative(operand=operand):
                x = self.compile(operand)
                return lambda frame: -x(frame)
            case typed.Arithmetic():
                return self._arithmetic(value)
            case typed.Compare():
                return self._compare(value)
            case typed.Same():
                return self._same(value)
            case typed.Contained():
                return self._contained(value)
            case typed.Not(operand=operand):
                return negation(self.compile(operand), maybe=operand.info.maybe)
            case typed.Logic():
                return logic(self, value)
            case typed.Conditional():
                return conditional(self, value)
            case typed.Otherwise():
                return otherwise(self, value)
            case typed.Missing():
                return presence(self, value)
            case typed.Element():
                return self._element(value)
            case typed.ListOf():
                return self._list_of(value)
            case typed.Aggregate():
                return aggregate(self, value)
            case typed.NodeAggregate():
                return node_aggregate(self, value)
            case typed.MemberAggregate():
                return self.member_value(value).column
            case typed.ListAggregate():
                return list_aggregate(self, value)
            case typed.Variable(binder=binder):
                return lambda frame: frame.item_of(binder)
            case typed.Unknown():
                raise ValueError(f"{value.span}: an expression with errors cannot be compiled")
            case _:
                assert_never(value)

    def _of_text(self, value: typed.Typed, read: typed.Read) -> Evaluate:
        texts = self._compile(read)
        outer, made = self._captures, self._made
        self._captures, self._made, self._is_of_text = None, {}, True
        try:
            evaluate = self._compile(value)
        finally:
            self._captures, self._made, self._is_of_text = outer, made, False
        truth = np.uint8 if value.info.maybe else np.bool_
        found = OfText(texts, evaluate, truth if value.info.type.kind is Kind.TRUTH else np.float64)
        self.of_texts.append(found)
        return found

    # --- numbers -----------------------------------------------------------------------------------------

    def _arithmetic(self, value: typed.Arithmetic) -> Evaluate:
        x, y = self.compile(value.left), self.compile(value.right)
        match value.operator:
            case "+":
                plain: Evaluate = lambda frame: x(frame) + y(frame)  # noqa: E731
            case "-":
                plain = lambda frame: x(frame) - y(frame)  # noqa: E731
            case "*":
                plain = lambda frame: x(frame) * y(frame)  # noqa: E731
            case "/" if value.right.info.low > 0 and value.right.info.low == value.right.info.high:
                plain = lambda frame: x(frame) / y(frame)  # noqa: E731
            case "/":
                return lambda frame: divide(x(frame), y(frame))
            case _:
                return lambda frame: remainder(x(frame), y(frame))
        if max(-value.info.low, value.info.high) <= intervals.LIMIT:
            return plain

        def checked(frame: Any) -> Any:
            with np.errstate(all="ignore"):
                return finite(plain(frame))

        return checked

    def _compare(self, value: typed.Compare) -> Evaluate:
        x, y = self.compile(value.left), self.compile(value.right)
        compare = _COMPARE[value.operator]
        if value.left.info.type.kind is Kind.VERSION:
            return _compare_versions(x, y, compare, maybe=value.info.maybe)
        if not value.info.maybe:
            return lambda frame: compare(x(frame), y(frame))

        def three_valued(frame: Any) -> Any:
            a, b = x(frame), y(frame)
            missing = is_nan(a) | is_nan(b)
            if isinstance(missing, np.ndarray):
                return np.where(missing, np.uint8(MISSING), to_kleene(compare(a, b)))
            return MISSING if missing else to_kleene(compare(a, b))

        return three_valued

    # --- texts and lists ---------------------------------------------------------------------------------

    def _same(self, value: typed.Same) -> Evaluate:
        x, y = self.compile(value.left), self.compile(value.right)
        if value.left.info.type.kind is Kind.TEXT:
            equal: Evaluate = lambda frame: same_text(x(frame), y(frame))  # noqa: E731
            return negation(equal, maybe=False) if value.negated else equal
        a, b = self.kleene(value.left), self.kleene(value.right)
        if not value.info.maybe:
            compare = operator.ne if value.negated else operator.eq
            return lambda frame: compare(x(frame), y(frame))

        def three_valued(frame: Any) -> Any:
            left, right = a(frame), b(frame)
            equal = to_kleene((left == right) != value.negated)
            missing = (left == MISSING) | (right == MISSING)
            if isinstance(missing, np.ndarray):
                return np.where(missing, np.uint8(MISSING), equal)
            return MISSING if missing else equal

        return three_valued

    def items(self, value: typed.Typed) -> Evaluate:
        """Return the callable of the items of a list: of `[node.zone, "a"]` a column and a text, not a list per row."""
        listed = typed.inner(value)
        if not isinstance(listed, typed.ListOf):
            return self.compile(value)
        made = [self.compile(item) for item in listed.items]
        return lambda frame: tuple(item(frame) for item in made)

    def _list_of(self, value: typed.ListOf) -> Evaluate:
        """Return the callable of a list; one per row, where an item differs by node."""
        items = self.items(value)
        if value.info.shape is not Shape.NODE:
            return items

        def rows(frame: Any) -> Any:
            return list(zip(*(_row_values(item, frame.size) for item in items(frame)), strict=True))

        return rows

    def _contained(self, value: typed.Contained) -> Evaluate:
        listed, numeric = typed.inner(value.list), value.item.info.type.kind is Kind.NUMBER
        if isinstance(listed, typed.ListOf) and (numeric or listed.info.shape is not Shape.DECISION):
            return self._contained_listed(value, listed)
        x, items = self.compile(value.item), self.compile(value.list)
        if numeric:
            return _contained_numbers(x, items, value, constant=isinstance(listed, typed.Constant))
        if value.list.info.shape is Shape.NODE:
            inside: Evaluate = lambda frame: contained_in_lists(x(frame), items(frame))  # noqa: E731
        else:
            inside = lambda frame: contained_text(x(frame), items(frame))  # noqa: E731
        return negation(inside, maybe=False) if value.negated else inside

    def _contained_listed(self, value: typed.Contained, listed: typed.ListOf) -> Evaluate:
        """Return `x in [a, b]` as what it means, `x == a or x == b`, where a or b is not constant."""
        tests: list[typed.Typed] = []
        for item in listed.items:
            if value.item.info.type.kind is Kind.NUMBER:
                tests.append(typed.Compare(value.info, value.span, "==", value.item, item))
            else:
                tests.append(typed.Same(value.info, value.span, False, value.item, item))
        either = self.compile(tests[0] if len(tests) == 1 else typed.Logic(value.info, value.span, "or", tuple(tests)))
        return negation(either, maybe=value.info.maybe) if value.negated else either

    def _element(self, value: typed.Element) -> Evaluate:
        listed, position, node = typed.inner(value.list), value.position, value.info.shape is Shape.NODE
        numeric = value.info.type.kind is Kind.NUMBER
        absent: Any = math.nan if numeric else None
        if isinstance(listed, typed.ListOf):
            made = self.compile(listed.items[position]) if position < len(listed.items) else lambda frame: absent
            if not node:
                return made
            if numeric:
                return lambda frame: full(made(frame), frame.size)
            return lambda frame: as_texts(made(frame), frame.size)
        items = self.compile(value.list)

        def element(row: Any) -> Any:
            return row[position] if position < len(row) else absent

        if not node:
            return lambda frame: element(items(frame))
        if numeric:
            return lambda frame: np.array([element(row) for row in items(frame)], np.float64)
        return lambda frame: texts_of(element(row) for row in items(frame))

    # --- truth -------------------------------------------------------------------------------------------

    def kleene(self, value: typed.Typed) -> Evaluate:
        """Return a truth expression as three-valued, from any truth type."""
        made = self.compile(value)
        return made if value.info.maybe else lambda frame: to_kleene(made(frame))

    # --- aggregates --------------------------------------------------------------------------------------

    def of_each_node(self, value: typed.Typed, captured: list[Evaluate]) -> Evaluate:
        """Return the callable of an expression over the nodes of an aggregate, which takes a `CapturingFrame`.

        captured: what it captures from the decision is added to these.
        """
        outer, made = self._captures, self._made
        self._captures, self._made = [], {}
        try:
            evaluate = _column(self, typed.of_rows(value))
            captures = self._captures
        finally:
            self._captures, self._made = outer, made
        first = len(captured)
        captured += [self.compile(capture) for capture in captures]
        if not first:
            return evaluate
        return lambda frame: evaluate(CapturingFrame(frame, frame.captured[first:]))

    def item(self, value: typed.Typed) -> tuple[Evaluate, list[Evaluate]]:
        """Return the callable of an expression over existing pods, and what it captures from the decision.

        The callable takes an `Item`; three-valued truth comes out as plain truth, missing as false.
        """
        evaluate, captures = self.item_and_captures(value)
        return evaluate, [self.compile(capture) for capture in captures]

    def item_and_captures(self, value: typed.Typed) -> tuple[Evaluate, list[typed.Typed]]:
        """Return the same, with what it captures as it was checked."""
        outer, made = self._captures, self._made
        self._captures, self._made = [], {}
        try:
            evaluate = self.compile(value)
            captures = self._captures
        finally:
            self._captures, self._made = outer, made
        if value.info.type.kind is Kind.TRUTH and value.info.maybe:
            inner = evaluate
            return lambda item: inner(item) == TRUE, captures
        return evaluate, captures


# --- versions --------------------------------------------------------------------------------------------


def _compare_versions(x: Evaluate, y: Evaluate, compare: Callable[[Any, Any], Any], *, maybe: bool) -> Evaluate:
    """Return the callable of a comparison of versions, called once for each pair of distinct texts in a column."""

    def asked(left: str | None, right: str | None) -> int:
        if left is None or right is None:
            return MISSING
        return TRUE if compare(version_key(left), version_key(right)) else FALSE

    def compared(frame: Any) -> Any:
        left, right = x(frame), y(frame)
        if isinstance(left, Texts) and isinstance(right, Texts):
            pairs = zip(_words(left), _words(right), strict=True)
            answers = np.array([asked(one, other) for one, other in pairs], np.uint8)
        elif isinstance(left, Texts):
            answers = by_value(left, lambda text: asked(text, right), absent=MISSING, dtype=np.uint8)
        elif isinstance(right, Texts):
            answers = by_value(right, lambda text: asked(left, text), absent=MISSING, dtype=np.uint8)
        else:
            answer = asked(left, right)
            return answer if maybe else answer == TRUE
        return answers if maybe else answers == TRUE

    return compared


def _words(column: Texts) -> list[str | None]:
    words: list[str | None] = [*column.values, None]
    return [words[code] for code in column.codes.tolist()]


# --- lists -----------------------------------------------------------------------------------------------


def _row_values(item: Any, size: int) -> Sequence[Any]:
    """Return an item of a list for each row, from a column or one value."""
    if isinstance(item, Texts):
        return _words(item)
    return item.tolist() if isinstance(item, np.ndarray) else [item] * size


def _contained_numbers(x: Evaluate, items: Evaluate, value: typed.Contained, *, constant: bool) -> Evaluate:
    """Return the callable of whether a number is in a list that is not written there, or is constant."""
    maybe = value.info.maybe

    def of_constants(frame: Any) -> Any:
        item = x(frame)
        result: Any = False
        for each in items(frame):
            result = result | (item == each)
        if not maybe:
            return result
        missing = is_nan(item)
        if isinstance(missing, np.ndarray):
            return np.where(missing, np.uint8(MISSING), to_kleene(result))
        return MISSING if missing else to_kleene(result)

    def of_rows(frame: Any) -> Any:
        item, lists = x(frame), items(frame)
        if value.info.shape is Shape.NODE:
            pairs = zip(_row_values(item, frame.size), list_rows(lists, frame.size), strict=True)
            result: Any = np.fromiter((contained_number(one, row) for one, row in pairs), np.uint8, frame.size)
        else:
            result = contained_number(item, lists)
        return result if maybe else result == TRUE

    inside = of_constants if constant else of_rows
    return negation(inside, maybe=maybe) if value.negated else inside


# --- calls of builtins -----------------------------------------------------------------------------------


def apply_call(value: typed.Apply, arguments: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return the callable of a call, from those of its arguments."""
    kernel, reads_frame = value.kernel, value.builtin.reads_frame or value.builtin.staged
    if value.builtin.receives is Receives.COLUMNS:
        return ByColumn(kernel, tuple(arguments))
    if any(a.info.type.kind is Kind.TEXT for a in value.arguments):
        return _by_text(value, arguments)
    if reads_frame:
        if not arguments:
            return kernel
        return lambda frame: kernel(frame, *(argument(frame) for argument in arguments))
    if len(arguments) == 1:
        only = arguments[0]
        return lambda frame: kernel(only(frame))
    return lambda frame: kernel(*(argument(frame) for argument in arguments))


class ByColumn(msgspec.Struct, frozen=True):
    """A call whose kernel takes the frame and its arguments as they are, columns of texts too."""

    kernel: Callable[..., Any]
    arguments: tuple[Callable[[Any], Any], ...]

    def __call__(self, frame: Any) -> Any:
        """Return the value."""
        return self.kernel(frame, *(argument(frame) for argument in self.arguments))


_TEXTS_IN_A_STEP = 1 << 10
"""Of a table that is made in steps: regular expressions take 3 to 6 ms."""


class _TextFrame(NamedTuple):
    """In the place of a frame, for what follows from one text of each row."""

    texts: Texts

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return len(self.texts.codes)


class OfText:
    """The callable of what follows from one text of each node alone, such as `lower(node.name) matches "…"`.

    It is evaluated once per distinct text, and kept.
    """

    __slots__ = ("_evaluate", "_kept", "_texts")

    def __init__(self, texts: Evaluate, evaluate: Evaluate, dtype: Any) -> None:
        """Keep what `evaluate` makes of a `_TextFrame` with what `texts` makes of a frame."""
        self._texts = texts
        self._evaluate = evaluate
        self._kept = KeptTable(dtype)

    def __call__(self, frame: Any) -> Any:
        """Return the value of each row."""
        return self._kept.of(self._texts(frame), self._of_column)

    def in_steps(self, frame: Any) -> Iterator[None]:
        """Make what is kept of the texts in steps; a frame with all rows. Between two steps nodes may change."""
        while self._kept.make(self._texts(frame), self._of_column, most=_TEXTS_IN_A_STEP):
            yield

    def _of_column(self, texts: Texts) -> Any:
        frame = _TextFrame(texts)
        return full(self._evaluate(frame), frame.size)


_OF_TEXT = (typed.Apply, typed.Compare, typed.Same, typed.Contained, typed.Missing)
"""What may be kept by text. What joins these is cheap, and filters give them as reasons one by one."""
_BETWEEN = (
    *_OF_TEXT,
    typed.Constant,
    typed.Reference,
    typed.Negative,
    typed.Arithmetic,
    typed.Not,
    typed.Logic,
    typed.Conditional,
    typed.Otherwise,
    typed.Element,
    typed.ListOf,
)


def _text_read(value: typed.Typed) -> typed.Read | None:
    """Return the text of each node that a value follows from, and nothing else; None where it does not, or is cheap."""
    info, read, calls = value.info, None, False
    if (
        info.shape is not Shape.NODE
        or not isinstance(value, _OF_TEXT)
        or info.type.kind not in (Kind.TRUTH, Kind.NUMBER)
    ):
        return None
    for part in typed.below(value):
        match part:
            case typed.Read(info=of_part, field=field, key=key):
                if (
                    of_part.shape is not Shape.NODE
                    or of_part.type.kind is not Kind.TEXT
                    or field.depends != Depends.NODE
                ):
                    return None
                if read is not None and (read.field.path, read.key) != (field.path, key):
                    return None
                read = part
            case typed.Apply(builtin=builtin, arguments=arguments):
                if (
                    builtin.reads_frame
                    or builtin.staged
                    or builtin.receives is Receives.COLUMNS
                    or builtin.shape is not None
                ):
                    return None
                calls = calls or any(argument.info.type.kind is Kind.TEXT for argument in arguments)
            case _ if not isinstance(part, _BETWEEN):
                return None
    return read if calls else None


def _by_text(value: typed.Apply, arguments: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    kernel = value.kernel
    texts = [at for at, argument in enumerate(value.arguments) if argument.info.type.kind is Kind.TEXT]
    gives = value.info.type.kind
    absent: Any = {Kind.TRUTH: False, Kind.NUMBER: float("nan"), Kind.LIST: ABSENT_LIST}.get(gives)
    frames = value.builtin.reads_frame
    dtype = np.bool_ if gives is Kind.TRUTH else np.float64
    kept = KeptTable(dtype)

    def call(frame: Any) -> Any:
        given = [argument(frame) for argument in arguments]
        inner = partial(kernel, frame) if frames else kernel
        columns = [at for at in texts if isinstance(given[at], Texts)]
        if not columns:
            return absent if any(given[at] is None for at in texts) else inner(*given)
        others = [value for at, value in enumerate(given) if at not in columns]
        if len(columns) == 1 and not any(other is None or isinstance(other, np.ndarray) for other in others):
            if not frames and gives in (Kind.NUMBER, Kind.TRUTH):
                at = columns[0]
                before, after = given[:at], given[at + 1 :]

                def of_column(column: Texts) -> Any:
                    return by_value(column, lambda text: inner(*before, text, *after), absent=absent, dtype=dtype)

                return kept.of(given[at], of_column, others=others)
            return _one_column(inner, given, columns[0], gives, absent)
        return _row_by_row(inner, given, texts, gives, absent, frame.size)

    return call


def _one_column(kernel: Callable[..., Any], given: list[Any], at: int, gives: Kind, absent: Any) -> Any:
    column: Texts = of_rows_asked(given[at])
    before, after = given[:at], given[at + 1 :]

    def one(text: str) -> Any:
        return kernel(*before, text, *after)

    match gives:
        case Kind.TEXT | Kind.VERSION:
            return map_texts(column, one)
        case Kind.TRUTH:
            return by_value(column, one, absent=absent, dtype=np.bool_)
        case Kind.NUMBER:
            return by_value(column, one, absent=absent, dtype=np.float64)
        case _:
            made = [*(one(text) for text in column.values), absent]
            return [made[code] for code in column.codes.tolist()]


def _row_by_row(
    kernel: Callable[..., Any], given: list[Any], texts: list[int], gives: Kind, absent: Any, size: int
) -> Any:
    """Ask the kernel for each row: where two texts, or a text and a number, both differ by node."""
    columns: list[list[Any]] = []
    for at, value in enumerate(given):
        if at in texts:
            coded = as_texts(value, size)
            columns.append(_words(coded))
        else:
            columns.append(value.tolist() if isinstance(value, np.ndarray) else [value] * size)
    rows = [absent if any(row[at] is None for at in texts) else kernel(*row) for row in zip(*columns, strict=True)]
    match gives:
        case Kind.TEXT | Kind.VERSION:
            return texts_of(rows)
        case Kind.LIST:
            return rows
        case _:
            return np.array(rows, np.bool_ if gives is Kind.TRUTH else np.float64)


# --- choices ---------------------------------------------------------------------------------------------


def conditional(compiler: Compiler, value: typed.Conditional) -> Evaluate:
    """Return the callable of `if … then … else …`; where the condition is missing, so is the result."""
    condition, kind = compiler.kleene(value.condition), value.info.type.kind
    node = value.info.shape is Shape.NODE
    truth = kind is Kind.TRUTH and value.info.maybe
    then = compiler.kleene(value.then) if truth else compiler.compile(value.then)
    other = compiler.kleene(value.otherwise) if truth else compiler.compile(value.otherwise)
    absent: Any = {Kind.TRUTH: MISSING, Kind.NUMBER: math.nan, Kind.LIST: ABSENT_LIST}.get(kind)

    def chosen_by(frame: Any) -> Any:
        which = condition(frame)
        if not isinstance(which, np.ndarray):
            chosen = absent if which == MISSING else then(frame) if which == TRUE else other(frame)
            return of_all_rows(chosen, frame.size, kind) if node else chosen
        if kind in TEXT_KINDS:
            chosen = select_text(which == TRUE, then(frame), other(frame), frame.size)
            return select_text(which != MISSING, chosen, None, frame.size)
        if kind is Kind.LIST:
            size = frame.size
            rows = zip(which.tolist(), list_rows(then(frame), size), list_rows(other(frame), size), strict=True)
            return [a if w == TRUE else b if w == FALSE else ABSENT_LIST for w, a, b in rows]
        picked = np.where(which == TRUE, then(frame), other(frame))
        if kind is Kind.TRUTH:
            return np.where(which == MISSING, np.uint8(MISSING), picked) if truth else picked
        return np.where(which == MISSING, np.nan, picked)

    return chosen_by


def of_all_rows(value: Any, size: int, kind: Kind) -> Any:
    """Return one value of a kind as a column; a column as it is."""
    if kind in TEXT_KINDS:
        return as_texts(value, size)
    return list_rows(value, size) if kind is Kind.LIST else full(value, size)


def otherwise(compiler: Compiler, value: typed.Otherwise) -> Evaluate:
    """Return the callable of `left ?? right`."""
    kind, node = value.info.type.kind, value.info.shape is Shape.NODE
    if not value.left.info.maybe:
        return compiler.compile(value.left)
    if kind is Kind.TRUTH:
        return _otherwise_truth(compiler, value)
    x, y = compiler.compile(value.left), compiler.compile(value.right)
    if kind is Kind.LIST:
        return _otherwise_list(x, y, node=node)

    def defaulted(frame: Any) -> Any:
        left = x(frame)
        if kind in TEXT_KINDS:
            if isinstance(left, Texts):
                return select_text(left.codes >= 0, left, y(frame), len(left.codes))
            chosen = y(frame) if left is None else left
            return as_texts(chosen, frame.size) if node else chosen
        missing = is_nan(left)
        if isinstance(left, np.ndarray):
            return np.where(missing, y(frame), left) if missing.any() else left
        chosen = y(frame) if missing else left
        return full(chosen, frame.size) if node else chosen

    return defaulted


def _otherwise_truth(compiler: Compiler, value: typed.Otherwise) -> Evaluate:
    x, y, maybe = compiler.kleene(value.left), compiler.kleene(value.right), value.info.maybe
    node = value.info.shape is Shape.NODE

    def defaulted(frame: Any) -> Any:
        left, right = x(frame), y(frame)
        if node:
            column = full(left, frame.size)
            chosen: Any = np.where(column == MISSING, right, column)
        else:
            chosen = right if left == MISSING else left
        return chosen if maybe else chosen == TRUE

    return defaulted


def _otherwise_list(x: Evaluate, y: Evaluate, *, node: bool) -> Evaluate:
    def defaulted(frame: Any) -> Any:
        left = x(frame)
        if not node:
            return y(frame) if left is ABSENT_LIST else left
        rows = zip(list_rows(left, frame.size), list_rows(y(frame), frame.size), strict=True)
        return [b if a is ABSENT_LIST else a for a, b in rows]

    return defaulted


# --- truth -----------------------------------------------------------------------------------------------


def logic(compiler: Compiler, value: typed.Logic) -> Evaluate:
    """Return the callable of a chain of `and` or of `or`."""
    both = value.operator == "and"
    if not value.info.maybe:
        return _plain_logic([compiler.compile(o) for o in value.operands], both, value.info.shape)
    operands = [compiler.kleene(o) for o in value.operands]
    if value.info.shape is Shape.NODE:
        combine: Callable[[Any, Any], Any] = np.minimum if both else np.maximum
    else:
        combine = min if both else max

    def chain(frame: Any) -> Any:
        result = operands[0](frame)
        for operand in operands[1:]:
            result = combine(result, operand(frame))
        return result

    if value.info.shape is not Shape.NODE:
        return chain
    return lambda frame: np.asarray(chain(frame), np.uint8)


def presence(compiler: Compiler, value: typed.Missing) -> Evaluate:
    """Return the callable of `x is missing`, or `x is not missing`."""
    x, info, there = compiler.compile(value.operand), value.operand.info, value.negated
    match info.type.kind:
        case Kind.TEXT | Kind.VERSION if info.maybe:

            def absent(frame: Any) -> Any:
                text = x(frame)
                if isinstance(text, Texts):
                    return text.codes >= 0 if there else text.codes < 0
                return (text is not None) is there

            return absent
        case Kind.NUMBER if info.maybe:
            nothing: Evaluate = lambda frame: is_nan(x(frame))  # noqa: E731
            return negation(nothing, maybe=False) if there else nothing
        case Kind.TRUTH if info.maybe:
            compare = operator.ne if there else operator.eq
            return lambda frame: compare(x(frame), MISSING)
        case Kind.LIST if info.maybe and info.shape is Shape.NODE:
            return lambda frame: are_absent(x(frame)) != there
        case Kind.LIST if info.maybe:
            return lambda frame: (x(frame) is ABSENT_LIST) != there
        case _ if info.shape is Shape.NODE:
            return lambda frame: np.full(frame.size, there, np.bool_)
        case _:
            return lambda frame: there


def negation(evaluate: Evaluate, *, maybe: bool) -> Evaluate:
    """Return the callable of `not x`."""
    if maybe:
        return lambda frame: TRUE - evaluate(frame)

    def negated(frame: Any) -> Any:
        value = evaluate(frame)
        return ~value if isinstance(value, np.ndarray) else not value

    return negated


def _plain_logic(operands: list[Evaluate], both: bool, shape: Shape) -> Evaluate:
    if shape is not Shape.NODE:
        if both:
            return lambda frame: all(operand(frame) for operand in operands)
        return lambda frame: any(operand(frame) for operand in operands)
    combine: Callable[[Any, Any], Any] = operator.and_ if both else operator.or_
    if len(operands) == 2:
        first, second = operands
        return lambda frame: combine(first(frame), second(frame))

    def logic(frame: Any) -> Any:
        result = operands[0](frame)
        for operand in operands[1:]:
            result = combine(result, operand(frame))
        return result

    return logic


# --- aggregates ------------------------------------------------------------------------------------------

_EVERYONE = "every pod"


def aggregate(compiler: Compiler, value: typed.Aggregate) -> Evaluate:
    """Return the callable of an aggregate: what it iterates over is a set that the environment keeps an index of."""
    pods, topology, function = compiler.pods, value.topology, value.function
    conditions = typed.conjuncts(value.where) if value.where is not None else ()
    if function in ("any", "all") and value.value is not None:
        conditions = (*conditions, *_tests(value.value, exceptions=function == "all"))
    of_nodes = tuple(part for part in conditions if typed.reads_its_node(part))
    members = _members(compiler, all_of(tuple(part for part in conditions if part not in of_nodes)))
    on = on_nodes(compiler, all_of(of_nodes)) if of_nodes else lambda frame: None
    values = value.value if function not in ("count", "any", "all") else None
    if values is not None and typed.reads_its_node(values):
        column = _column_of_nodes(compiler, values)
        return lambda frame: pods.fold_of_nodes(
            frame, members(frame), column(frame), function=function, topology=topology, on=on(frame)
        )
    worth = _members(compiler, values) if values is not None else None
    if isinstance(members, _Constant) and (worth is None or isinstance(worth, _Constant)):
        compiler.pods_read.append(PodsRead(function, members.members, worth.members if worth is not None else None))
    if function == "count":
        return lambda frame: pods.count(frame, members(frame), topology=topology, on=on(frame))
    if function == "any":
        return lambda frame: pods.count(frame, members(frame), topology=topology, on=on(frame)) > 0
    if function == "all":
        return lambda frame: pods.count(frame, members(frame), topology=topology, on=on(frame)) == 0
    assert worth is not None
    return lambda frame: pods.fold(
        frame, members(frame), worth(frame), function=function, topology=topology, on=on(frame)
    )


def _tests(test: typed.Typed, *, exceptions: bool) -> tuple[typed.Typed, ...]:
    """Return the conditions of the members that are looked for: of `all`, those for which it is not surely true."""
    if not exceptions:
        return typed.conjuncts(test)
    test = typed.Not(test.info, test.span, test)
    if test.info.maybe:
        info = Info(test.info.type, test.info.shape, False, test.info.depends)
        true = typed.Constant(Info(test.info.type), test.span, True)
        test = typed.Otherwise(info, test.span, test, true)
    return (test,)


def all_of(conditions: tuple[typed.Typed, ...]) -> typed.Typed | None:
    """Return conditions joined with `and`; None without any."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    depends, maybe = Depends.NOTHING, False
    for each in conditions:
        depends, maybe = depends | each.info.depends, maybe or each.info.maybe
    first = conditions[0]
    return typed.Logic(Info(first.info.type, Shape.ITEM, maybe, depends), first.span, "and", conditions)


def on_nodes(compiler: Compiler, condition: typed.Typed | None) -> Callable[[Any], OnNodes | None]:
    """Return the callable of the nodes for which a condition on the node of each pod is true."""
    assert condition is not None
    captured: list[Evaluate] = []
    test = compiler.of_each_node(condition, captured)

    def on(frame: Any) -> OnNodes:
        given = captured_values(captured, frame)
        return OnNodes(test(CapturingFrame(frame.at(slice(None)), given)), (condition, given))

    return on


def _column_of_nodes(compiler: Compiler, value: typed.Typed) -> Evaluate:
    """Return the callable of a value of the node of each pod, for all nodes."""
    captured: list[Evaluate] = []
    column = compiler.of_each_node(value, captured)
    return lambda frame: column(CapturingFrame(frame.at(slice(None)), captured_values(captured, frame)))


_ABSENT: dict[Kind, Any] = {Kind.NUMBER: math.nan, Kind.TRUTH: MISSING, Kind.LIST: ()}
"""What a field of a node is that is not known; of other kinds, None."""


def _read_of_its_node(read: Callable[..., Any], key: tuple[str, ...], absent: Any, item: Any) -> Any:
    """Return a field of the node of one pod."""
    frame = item.on_node()
    if frame is None:
        return absent
    column = read(frame, *key)
    if isinstance(column, Texts):
        code = column.codes.item(0)
        return column.values[code] if code >= 0 else None
    return column.item(0) if isinstance(column, np.ndarray) else next(iter(column))


class _Constant(msgspec.Struct, frozen=True, eq=False):
    """From a frame to what is the same for every frame."""

    members: Members

    def __call__(self, frame: Any) -> Members:
        return self.members


def _members(compiler: Compiler, value: typed.Typed | None) -> Callable[[Any], Members]:
    if value is None:
        return _Constant(Members(_EVERYONE, (), lambda item: True))
    evaluate, captures = compiler.item_and_captures(value)
    captured = [compiler.compile(capture) for capture in captures]
    state = _state_reads(value) if value.info.depends & Depends.RUN else None
    own = own_reads(value)
    if not captured:
        return _Constant(Members(value, (), evaluate, state=state, own=own))
    by, at = _equals_captured(value, captures)
    return lambda frame: Members(value, captured_values(captured, frame), evaluate, by, state, at, own)


def _equals_captured(value: typed.Typed, captures: Sequence[typed.Typed]) -> tuple[Evaluate | None, int]:
    """Return a text of pods that equals a captured one for all pods of a set, and which one; None if there is none."""
    value = typed.inner(value)
    for part in value.operands if isinstance(value, typed.Logic) and value.operator == "and" else (value,):
        same = typed.inner(part)
        if not isinstance(same, typed.Same) or same.negated or same.left.info.type.kind is not Kind.TEXT:
            continue
        for one, other in ((same.left, same.right), (same.right, same.left)):
            read = typed.inner(one)
            at = next((at for at, capture in enumerate(captures) if capture is other), None)
            if at is not None and isinstance(read, typed.Read) and read.info.shape is Shape.ITEM:
                return _item_reader(read.field.read, read.key), at
    return None, 0


@lru_cache(maxsize=1024)
def _item_reader(read: Callable[..., Any], key: str | None) -> Evaluate:
    """Return the reader of a field of existing pods: the same one for the same field, so that all share one index."""
    return read if key is None else lambda item: read(item, key)


def own_reads(value: typed.Typed | None) -> frozenset[tuple[str, str | None]]:
    """Return what an expression over existing pods reads of them besides their templates, as `Members.own`."""
    return frozenset(
        (part.field.path, part.key)
        for part in (typed.below(value) if value is not None else ())
        if isinstance(part, typed.Read) and part.info.shape is Shape.ITEM and part.field.depends & Depends.OWN
    )


_RUNNING, _RESTARTS = "pod.running", "pod.restarts"
"""Fields of running pods that are numbers."""


def _state_reads(value: typed.Typed) -> StateReads:
    """Return what an expression over existing pods reads of their state."""
    edges: dict[str, set[float]] = {_RUNNING: set(), _RESTARTS: set()}
    is_compared = _find_thresholds(value, edges)
    running, restarts = (tuple(sorted(edge for edge in edges[path] if edge >= 0)) for path in (_RUNNING, _RESTARTS))
    is_counted = is_compared and len(running) <= MOST_THRESHOLDS and len(restarts) <= MOST_RESTARTS
    read = typed.inner(value)
    is_running = isinstance(read, typed.Read) and read.field.path == _RUNNING
    return StateReads(running if is_counted else None, is_running, restarts if is_counted else ())


def _find_thresholds(value: typed.Typed, edges: dict[str, set[float]]) -> bool:
    """Add what the numbers of running pods are compared with; return False if one is used in another way."""
    value = typed.inner(value)
    match value:
        case typed.Read(field=field) if field.path in edges:
            return False
        case typed.Compare(left=left, right=right):
            for one, other in ((left, right), (right, left)):
                read, bound = typed.inner(one), constant_number(other)
                if isinstance(read, typed.Read) and read.field.path in edges and bound is not None:
                    edges[read.field.path].add(bound)
                    return True
    return all(_find_thresholds(part, edges) for part in typed.parts(value))


def captured_values(captures: Sequence[Evaluate], frame: Any) -> tuple[Any, ...]:
    """Return what an expression over existing pods takes from the decision, as values that equal themselves."""
    return tuple(_comparable(capture(frame)) for capture in captures)


def _comparable(value: Any) -> Any:
    """Return a captured value as one that equals itself: all missing numbers are one object."""
    return math.nan if isinstance(value, float) and value != value else value


# --- aggregates over nodes -------------------------------------------------------------------------------

_BY_ROW = Depends.NODE | Depends.ROW | Depends.OFFER
"""What of a node changes only with the node."""


def node_aggregate(compiler: Compiler, value: typed.NodeAggregate) -> Evaluate:
    """Return the callable of an aggregate over nodes: columns of all nodes, reduced to one value or one a domain."""
    pods, captured = compiler.pods, list[Evaluate]()
    made: dict[str, Evaluate | None] = {"value": None, "where": None}
    depends = Depends.NOTHING
    for name, part in (("value", value.value), ("where", value.where)):
        if part is not None:
            depends |= _of_nodes(part)
            made[name] = compiler.of_each_node(part, captured)
    fold = NodeFold(value.function, value.topology, made["value"], made["where"], changes_by_row=not depends & ~_BY_ROW)
    return lambda frame: pods.fold_nodes(frame, fold, captured_values(captured, frame))


def _of_nodes(value: typed.Typed) -> Depends:
    """Return what the parts follow from that differ from node to node."""
    if value.info.shape is not Shape.ITEM:
        return Depends.NOTHING
    found = value.field.depends if isinstance(value, typed.Read) else Depends.NOTHING
    if isinstance(value, typed.Apply):
        found = value.builtin.depends
    for part in typed.parts(value):
        found |= _of_nodes(part)
    return found


def column_items(column: Any, size: int, info: Info) -> list[Any]:
    """Return the value of each row: numbers, truths as 0 and 1, or texts; NaN or None for what is missing."""
    if info.type.kind in TEXT_KINDS:
        return list(_words(as_texts(column, size)))
    values = full(column, size)
    if info.type.kind is Kind.TRUTH and info.maybe:
        values = np.where(values == MISSING, np.nan, values == TRUE)
    return [float(value) for value in values.tolist()]


def _column(compiler: Compiler, value: typed.Typed) -> Evaluate:
    """Return the callable of a column: truth that is surely so, a number per row, or texts."""
    made, kind = compiler.compile(value), value.info.type.kind
    if kind is Kind.TEXT:
        return lambda frame: as_texts(made(frame), frame.size)
    if kind is Kind.TRUTH and value.info.maybe:
        return lambda frame: full(made(frame) == TRUE, frame.size)
    return lambda frame: full(made(frame), frame.size)


# --- aggregates over lists -------------------------------------------------------------------------------


_MOST_CELLS = 1 << 20
"""Values of items and nodes that are looked at together: a tenant's pod has as many images as he likes."""


class _Bound:
    """What expressions read, with the items of variables of lists."""

    __slots__ = ("_binder", "_frame", "_item")

    def __init__(self, frame: Any, binder: typed.Binder, item: Any) -> None:
        self._frame = frame
        self._binder = binder
        self._item = item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)

    def item_of(self, binder: typed.Binder) -> Any:
        """Return the value of a variable: one item, or one for each row."""
        return self._item if binder is self._binder else self._frame.item_of(binder)


def list_aggregate(compiler: Compiler, value: typed.ListAggregate) -> Evaluate:
    """Return the callable of an aggregate over a list: of the pod, or of each node."""
    if value.list.info.shape is Shape.NODE and not isinstance(typed.inner(value.list), typed.ListOf):
        return _over_lists_of_nodes(compiler, value)
    parts = (part for part in (value.list, value.value, value.where) if part is not None)
    if any(part.info.shape is Shape.NODE for part in parts):
        return _over_list_and_nodes(compiler, value)
    return _over_list(compiler, value)


def _over_list(compiler: Compiler, value: typed.ListAggregate) -> Evaluate:
    """Go over one list with one value for each item."""
    items, binder, function = compiler.compile(value.list), value.binder, value.function
    where = _item_value(compiler, value.where) if value.where is not None else None
    of_each = _item_value(compiler, value.value) if value.value is not None else None
    truth = value.info.type.kind is Kind.TRUTH

    def over(frame: Any) -> Any:
        chosen = [_Bound(frame, binder, item) for item in items(frame)]
        if where is not None:
            chosen = [bound for bound in chosen if where(bound)]
        if of_each is None:
            return bool(chosen) if truth else float(len(chosen))
        if function == "any":
            return any(of_each(bound) for bound in chosen)
        if function == "all":
            return all(of_each(bound) for bound in chosen)
        values = [of_each(bound) for bound in chosen]
        if function == "distinct":
            return float(len({each for each in values if each is not None and each == each}))
        return float(reduced(function, np.array(values, np.float64), None, None, 1)[0])

    return over


def _item_value(compiler: Compiler, value: typed.Typed) -> Evaluate:
    """Return the callable of one value: truth that is surely so, a number, or a text."""
    made = compiler.compile(value)
    if value.info.type.kind is Kind.TRUTH and value.info.maybe:
        return lambda frame: made(frame) == TRUE
    return made


def _over_list_and_nodes(compiler: Compiler, value: typed.ListAggregate) -> Evaluate:
    """Go over one list with a value for each item and each node: a column for each item."""
    items, binder, function = compiler.items(value.list), value.binder, value.function
    where = _column(compiler, value.where) if value.where is not None else None
    of_each = _column(compiler, value.value) if value.value is not None else None
    texts = value.value is not None and value.value.info.type.kind is Kind.TEXT

    def over(frame: Any) -> Any:
        number, size = len(items(frame)), frame.size
        if not number:
            return np.full(size, nothing(function))
        if number * size <= _MOST_CELLS:
            return of_rows(frame)
        index, step = frame.index(), max(1, _MOST_CELLS // number)
        return np.concatenate([of_rows(frame.at(index[at : at + step])) for at in range(0, size, step)])

    def of_rows(frame: Any) -> Any:
        size = frame.size
        bounds = [_Bound(frame, binder, item) for item in items(frame)]
        chosen = np.concatenate([where(bound) for bound in bounds]) if where is not None else None
        values: Any = None
        if of_each is not None:
            columns = [of_each(bound) for bound in bounds]
            values = _joined_texts(columns) if texts else np.concatenate(columns)
        return _by_row(function, values, chosen, np.tile(np.arange(size), len(bounds)), size)

    return over


def _over_lists_of_nodes(compiler: Compiler, value: typed.ListAggregate) -> Evaluate:
    """Iterate over the lists of all nodes at once: one row for each item of each node, or of each list that differs."""
    lists, binder, function = compiler.compile(value.list), value.binder, value.function
    where = _column(compiler, value.where) if value.where is not None else None
    of_each = _column(compiler, value.value) if value.value is not None else None
    numeric = value.list.info.type.item is Kind.NUMBER
    parts = [part for part in (value.value, value.where) if part is not None]
    by_list = not any(_is_of_the_node(each) for part in parts for each in typed.below(part))

    def over(frame: Any) -> Any:
        found = lists(frame)
        if by_list and isinstance(found, Lists):
            # the same for all nodes with the same list, so it matters not which node is looked at
            return of_rows(found.values, frame, np.zeros(len(found.values), np.int64))[found.codes]
        return of_rows(found, frame, frame.index())

    def of_rows(found: Sequence[Sequence[str]], frame: Any, index: Any) -> Any:
        size = len(found)
        lengths = np.fromiter(map(len, found), np.intp, size)
        rows = np.repeat(np.arange(size), lengths)
        if not len(rows):
            return np.full(size, nothing(function))
        every = (item for row in found for item in row)
        items = np.fromiter(every, np.float64, len(rows)) if numeric else texts_of(every)
        bound = _Bound(frame.at(index[rows]), binder, items)
        chosen = where(bound) if where is not None else None
        return _by_row(function, of_each(bound) if of_each is not None else None, chosen, rows, size)

    return over


def _is_of_the_node(value: typed.Typed) -> bool:
    """Return whether a part is read from each node, and is not made of such parts."""
    if value.info.shape is not Shape.NODE:
        return False
    if isinstance(value, typed.Apply):
        return value.builtin.shape is Shape.NODE or value.builtin.staged
    return isinstance(value, typed.Read | typed.Aggregate | typed.NodeAggregate)


def _by_row(function: str, values: Any, chosen: Any, rows: Any, size: int) -> Any:
    """Return what a function makes of the items of each row."""
    if values is None and function == "any":
        values, chosen = (np.ones(len(rows), np.bool_) if chosen is None else chosen), None
    return reduced(function, values, chosen, rows, size)


def _joined_texts(columns: Sequence[Texts]) -> Texts:
    """Return columns of texts one behind the other."""
    every = ([*column.values, None] for column in columns)
    return texts_of(words[code] for column, words in zip(columns, every, strict=True) for code in column.codes.tolist())
