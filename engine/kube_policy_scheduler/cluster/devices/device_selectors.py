"""Selectors of devices: an expression compiled once, and its result for one device."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final

import msgspec

from kube_policy_scheduler.cel.evaluator import Paused, Run, Step, compile_node, node_count
from kube_policy_scheduler.cel.functions import parse_semver
from kube_policy_scheduler.cel.syntax import Mismatch, TooDeep, read
from kube_policy_scheduler.cel.values import EMPTY_MAP, CelError, CostLimitExceeded, Map, MissingKeyError, type_name
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.attribute_references import Reference, references, values
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.search_work import UNLIMITED, Work
from kube_policy_scheduler.quantities.exact_quantity import QuantityError, parse
from kube_policy_scheduler.remembered import on_forget

MAX_COST: Final = 1_000_000
"""The cost limit of one evaluation (`CELSelectorExpressionMaxCost`)."""
MAX_LENGTH: Final = 10 * 1024
"""Characters of an expression (`CELSelectorExpressionMaxLength`)."""
_KEPT, _KEPT_BYTES = 1 << 10, 32 * 2**20
"""Compiled expressions that are kept, and their sizes together."""
_NODE_BYTES, _EXPRESSION_BYTES = 320, 4096
"""What a node of an expression takes once it is compiled, and what an expression takes besides."""
_MOST_KNOWN, _MOST_KNOWN_BYTES = 1 << 16, 32 * 2**20
"""Results that are kept, of all expressions together, and their sizes."""
_RESULT_BYTES, _VALUE_BYTES = 300, 64
"""Of a result, and of each value by which it is known, besides texts."""
_MOST_ERROR = 2000
"""Characters of an error: an expression can make 1 MB of one."""
_STEPS_TO_BEGIN = 6
"""Of an evaluation: the device's attributes become values."""
_MOST_UNDER_WAY = 4
"""Evaluations of one expression that are kept while they pause."""


def _none_under_way() -> KeptView[Hashable, SelectorRun]:
    return KeptView(most=_MOST_UNDER_WAY)


class CompiledSelector(msgspec.Struct, frozen=True, eq=False):
    """A compiled expression."""

    expression: str
    step: Step | None
    error: str = ""
    """Why it cannot be compiled, "" if it can."""
    reads: tuple[Reference, ...] = ()
    """What it reads of a device."""
    under_way: KeptView[Hashable, SelectorRun] = msgspec.field(default_factory=_none_under_way)
    """Evaluations that paused, by what it reads of the device."""
    nodes: int = 1
    """Of the expression."""

    def match(self, driver: str, device: objects.Device) -> Match:
        """Return the result for a device; devices that are equal in what it reads are evaluated once."""
        found = self.try_match(driver, device, UNLIMITED)
        assert found is not None
        return found

    def try_match(self, driver: str, device: objects.Device, work: Work) -> Match | None:
        """Return the same; None: first other work gets its turn, then it goes on.

        work: pays for the evaluation.
        """
        key = values(self.reads, driver, device)
        known = _known.get((self, key))
        if known is None:
            evaluation = self.under_way.pop(key)
            if evaluation is None:
                work.left_now -= _STEPS_TO_BEGIN
                variables = device_variables(driver, device)
                if isinstance(variables, str):
                    return Match(False, variables)
                evaluation = SelectorRun(self, variables)
            known = evaluation.go_on(work)
            if known is None:
                self.under_way.set(key, evaluation)
                return None
            _known.set((self, key), known)
        return known

    def matches(self, device: DeviceVariables) -> Match:
        """Return the result of the expression for a device, with its cost."""
        found = SelectorRun(self, device).go_on(UNLIMITED)
        assert found is not None
        return found


class SelectorRun:
    """One evaluation of an expression, which may pause."""

    def __init__(self, selector: CompiledSelector, device: DeviceVariables) -> None:
        assert selector.step is not None
        self._step, self._nodes = selector.step, selector.nodes
        self._run = Run(device, MAX_COST)

    def go_on(self, work: Work) -> Match | None:
        """Return the result, None if the turn was over before; `work` pays for it."""
        run, before = self._run, self._run.steps
        run.begin(work.left_now)
        run.nodes += self._nodes
        try:
            value = self._step(run)
        except Paused:
            return None
        except (CelError, CostLimitExceeded) as error:
            text = f"CEL runtime error: {_shortened(str(error))}"
            return Match(False, text, run.cost, misses_key=isinstance(error, MissingKeyError))
        except RecursionError:
            return Match(False, "CEL runtime error: the expression is nested too deeply", run.cost)
        finally:
            work.left_now -= run.steps - before
        if type(value) is not bool:
            text = f"CEL result of type {type_name(value)} could not be converted to bool: {_no_bool(value)}"
            return Match(False, f"CEL runtime error: {text}", run.cost)
        return Match(value, "", run.cost)


class Match(msgspec.Struct, frozen=True):
    """The result of an expression for a device."""

    matches: bool
    error: str = ""
    """The error of the evaluation, in cel-go's words; "" without an error."""
    cost: int = 0
    misses_key: bool = False
    """Whether the error is that the device does not have what is read."""


def _size(key: object) -> int:
    """Return about how many bytes what a selector reads of a device takes."""
    if isinstance(key, tuple):
        return _VALUE_BYTES + sum(map(_size, key))
    return _VALUE_BYTES + (len(key) if isinstance(key, str) else 0)


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_ERROR else f"{text[:_MOST_ERROR]}…"


_known: KeptView[tuple[CompiledSelector, Hashable], Match] = KeptView(
    KeptBytes(_MOST_KNOWN_BYTES),
    most=_MOST_KNOWN,
    size_of=lambda key, match: _RESULT_BYTES + _size(key[1]) + len(match.error),
)
"""Results for devices, by what selectors read of them."""
on_forget(_known.clear)  # devices keep the results that are asked for again and again


DeviceVariables = Mapping[str, Any]
"""The variables of an expression: `device` and, as names of their own, its fields."""


def _no_bool(value: Any) -> str:
    """Return cel-go's words for a value that is not a bool."""
    name = type_name(value)
    match name:
        case "string":
            return "unsupported native conversion from string to 'bool'"
        case "int" | "uint":
            return f"unsupported type conversion from '{name}' to bool"
        case "double" | "bytes" | "list" | "map":
            return f"type conversion error from {name.capitalize() if name in ('double', 'bytes') else name} to 'bool'"
        case "kubernetes.Semver" | "kubernetes.Quantity":
            return f"type conversion error from '{name.removeprefix('kubernetes.')}' to 'bool'"
    return f"type conversion error from '{name}' to 'bool'"


def problem_of(device: objects.Device) -> str:
    """Return why no selector can be evaluated for a device, "" if any can: an attribute that cannot be read."""
    for name, attribute in (device.attributes or {}).items():
        if attribute.string_value is None and attribute.int_value is None and attribute.bool_value is None:
            try:
                _attribute(attribute)
            except CelError as error:
                return f"CEL runtime error: attribute {name}: {error}"
    return ""


def device_variables(driver: str, device: objects.Device) -> DeviceVariables | str:
    """Return the variables of a device, or why an attribute cannot be read.

    Of an attribute or capacity that is published twice, as the driver's and with its domain, the latter counts.
    """
    attributes: dict[str, dict[str, Any]] = {}
    for name, attribute in sorted((device.attributes or {}).items(), key=_is_qualified):
        try:
            value = _attribute(attribute)
        except CelError as error:
            return f"CEL runtime error: attribute {name}: {error}"
        domain, own = _qualified(name, driver)
        attributes.setdefault(domain, {})[own] = value
    capacity: dict[str, dict[str, Any]] = {}
    for name, amount in sorted((device.capacity or {}).items(), key=_is_qualified):
        domain, own = _qualified(name, driver)
        try:
            capacity.setdefault(domain, {})[own] = parse(amount.value)
        except QuantityError as error:
            return f"CEL runtime error: capacity {name}: {error}"
    fields = {
        "driver": driver,
        "allowMultipleAllocations": bool(device.allow_multiple_allocations),
        "attributes": Map.of_texts({domain: Map.of_texts(own) for domain, own in attributes.items()}, EMPTY_MAP),
        "capacity": Map.of_texts({domain: Map.of_texts(own) for domain, own in capacity.items()}, EMPTY_MAP),
    }
    return {"device": Map.of_texts(fields), **{f"device.{name}": value for name, value in fields.items()}}


def _attribute(attribute: objects.DeviceAttribute) -> Any:
    """Return the value of an attribute; a list is a tuple, as in `cel`."""
    for listed in (attribute.int_values, attribute.bool_values, attribute.string_values):
        if listed is not None:
            return tuple(listed)
    if attribute.version_values is not None:
        return tuple(map(_version, attribute.version_values))
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    if attribute.version_value is not None:
        return _version(attribute.version_value)
    raise CelError("unsupported attribute value")


def _version(text: str) -> Any:
    try:
        return parse_semver(text)
    except CelError as error:
        raise CelError(f"parse semantic version: {error}") from None


def _is_qualified(entry: tuple[str, Any]) -> bool:
    return "/" in entry[0]


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """Return the domain and the name within it; a name without a domain is the driver's."""
    domain, slash, own = name.partition("/")
    return (domain, own) if slash else (driver, name)


# --- compiling --------------------------------------------------------------------------------------------


_compiled: KeptView[str, CompiledSelector] = KeptView(
    KeptBytes(_KEPT_BYTES),
    most=_KEPT,
    size_of=lambda text, selector: _EXPRESSION_BYTES + len(text) + len(selector.error) + _NODE_BYTES * selector.nodes,
)


def compile_selector(expression: str) -> CompiledSelector:
    """Return an expression compiled, or with the reason why it is not valid; the same object for the same text."""
    known = _compiled.get(expression)
    if known is None:
        known = _compile(expression)
        if len(expression) <= MAX_LENGTH:
            _compiled.set(expression, known)
    return known


def _compile(expression: str) -> CompiledSelector:
    if len(expression) > MAX_LENGTH:
        return CompiledSelector(
            expression, None, f"compilation failed: expression is longer than {MAX_LENGTH} characters"
        )
    try:
        checked = read(_check(expression))
        if checked.mismatches:
            texts = (_at(expression, one.position, _mismatch(one)) for one in checked.mismatches)
            return CompiledSelector(expression, None, "compilation failed: " + "\n".join(texts))
        if checked.type_name not in ("bool", "dyn"):
            text = f"must evaluate to bool or the unknown type, not {checked.type_name}"
            return CompiledSelector(expression, None, text)
        root = checked.root
        return CompiledSelector(expression, compile_node(root), reads=references(root), nodes=node_count(root))
    except (CelError, TooDeep, RuntimeError, RecursionError) as error:
        return CompiledSelector(expression, None, f"compilation failed: {_plain(str(error))}")


def _mismatch(one: Mismatch) -> str:
    return f"expected type '{one.expected}' but found '{one.found}'"


def _at(expression: str, position: int, text: str) -> str:
    """Return an error with the line it is in, as the checker writes it."""
    before = expression[:position]
    line, column = before.count("\n"), position - (before.rfind("\n") + 1)
    shown = expression.split("\n")[line]
    dots = "".join("." if character.isascii() else "．" for character in shown[:column])
    return f"ERROR: <input>:{line + 1}:{column + 1}: {text}\n | {shown}\n | {dots}^"


def _plain(text: str) -> str:
    """Return the checker's text without the status that its library puts around it."""
    head, colon, rest = text.partition(": ")
    if colon and head.isupper():
        text = rest.rsplit(" [", 1)[0]
    return _UNKNOWN_FIELD.sub(r"undefined field '\1'", text)


_UNKNOWN_FIELD = re.compile(r"undeclared reference to 'device\.(\w+)' \(in container ''\)")


class _WholeDevice(Enum):
    """What the checker takes `device` itself for, beside its fields."""

    UNKNOWN = "no variable"
    OPAQUE = "a type without fields"
    DYNAMIC = "a value of any type"


def _check(expression: str) -> bytes:
    """Return the checked expression; one that names `device` as a whole is checked with less known about it."""
    try:
        checked = _environment(_WholeDevice.UNKNOWN).compile(expression)
    except RuntimeError as error:
        if "undeclared reference to 'device' " not in str(error):
            raise
        try:
            checked = _environment(_WholeDevice.OPAQUE).compile(expression)
        except RuntimeError as opaque:
            if "cannot be the operand of a select" not in str(opaque):
                raise
            checked = _environment(_WholeDevice.DYNAMIC).compile(expression)
    serialized: bytes = checked.serialize()
    return serialized


@cache
def _environment(whole_device: _WholeDevice) -> Any:
    """Return the checker's environment: Kubernetes 1.37's for selectors that the API server admitted.

    Attributes may be lists there, also while the gate DRAListTypeAttributes is off. What an older server admits is
    valid in it, too.
    """
    cel = _library()
    text = cel.Type.STRING
    quantity = cel.Type.AbstractType("kubernetes.Quantity")
    variables = {
        "device.driver": text,
        "device.allowMultipleAllocations": cel.Type.BOOL,
        "device.attributes": cel.Type.Map(text, cel.Type.Map(text, cel.Type.DYN)),
        "device.capacity": cel.Type.Map(text, cel.Type.Map(text, quantity)),
    }
    if whole_device is not _WholeDevice.UNKNOWN:
        opaque = whole_device is _WholeDevice.OPAQUE
        variables["device"] = cel.Type.AbstractType("kubernetes.DRADevice") if opaque else cel.Type.DYN
    declared = [cel.FunctionDecl(name, overloads) for name, overloads in _kubernetes_functions().items()]
    return cel.NewEnv(config=cel.NewEnvConfigFromYaml(_EXTENSIONS), variables=variables, functions=declared)


def _library() -> Any:
    """Return the checker's library: 14 MB that most clusters never need."""
    from cel_expr_python import cel  # type: ignore[import-untyped]  # it has stubs, and no py.typed

    return cel


_EXTENSIONS = """
name: kubernetes
extensions:
- name: bindings
- name: lists
- name: optional
- name: sets
- name: two-var-comprehensions
"""


def _kubernetes_functions() -> dict[str, list[Any]]:
    """Return the signatures of functions that the checker does not know itself, by name."""
    cel = _library()
    types = {
        "bool": cel.Type.BOOL,
        "int": cel.Type.INT,
        "double": cel.Type.DOUBLE,
        "string": cel.Type.STRING,
        "any": cel.Type.DYN,
        "value": cel.Type.DYN,
        "list": cel.Type.List(cel.Type.DYN),
        "strings": cel.Type.List(cel.Type.STRING),
        "quantity": cel.Type.AbstractType("kubernetes.Quantity"),
        "semver": cel.Type.AbstractType("kubernetes.Semver"),
    }
    found: dict[str, list[Any]] = {}
    for line in _SIGNATURES.split("\n"):
        if line:
            left, _, result = line.partition(" -> ")
            head, _, rest = left.partition("(")
            target, _, name = head.rpartition(".")
            arguments = [part for part in rest.rstrip(")").split(", ") if part]
            is_method = target in types and name != "quote"
            if is_method:
                arguments.insert(0, target)
            else:
                name = head
            identity = "_".join(("k8s", name, *arguments))
            overload = cel.Overload(identity, types[result], [types[part] for part in arguments], is_method)
            found.setdefault(name, []).append(overload)
    return found


_SIGNATURES = """
value.includes(value) -> bool
string.charAt(int) -> string
string.indexOf(string) -> int
string.indexOf(string, int) -> int
string.lastIndexOf(string) -> int
string.lastIndexOf(string, int) -> int
string.lowerAscii() -> string
string.upperAscii() -> string
string.trim() -> string
string.replace(string, string) -> string
string.replace(string, string, int) -> string
string.split(string) -> strings
string.split(string, int) -> strings
string.substring(int) -> string
string.substring(int, int) -> string
string.format(list) -> string
strings.join() -> string
strings.join(string) -> string
strings.quote(string) -> string
list.isSorted() -> bool
list.sum() -> any
list.min() -> any
list.max() -> any
list.indexOf(any) -> int
list.lastIndexOf(any) -> int
string.find(string) -> string
string.findAll(string) -> strings
string.findAll(string, int) -> strings
quantity(string) -> quantity
isQuantity(string) -> bool
sign(quantity) -> int
quantity.isInteger() -> bool
quantity.asInteger() -> int
quantity.asApproximateFloat() -> double
quantity.isGreaterThan(quantity) -> bool
quantity.isLessThan(quantity) -> bool
quantity.compareTo(quantity) -> int
quantity.add(quantity) -> quantity
quantity.add(int) -> quantity
quantity.sub(quantity) -> quantity
quantity.sub(int) -> quantity
semver(string) -> semver
semver(string, bool) -> semver
isSemver(string) -> bool
isSemver(string, bool) -> bool
semver.isGreaterThan(semver) -> bool
semver.isLessThan(semver) -> bool
semver.compareTo(semver) -> int
semver.major() -> int
semver.minor() -> int
semver.patch() -> int
"""
