"""What there are several of: counts over the source tree, each with the aim that it is held to.

    python -m tests.mechanisms                  # the table for this source tree
    python -m tests.mechanisms OTHER/engine     # before and after: another source tree, and this one

`tests/test_architecture.py` holds each count to its ceiling, which may only fall.
"""

from __future__ import annotations

import argparse
import ast
import gc
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "kube_policy_scheduler"
DECIDES = ("cluster/", "framework/", "policy/", "fleet/", "daemon/scheduling/", "tooling/")
"""Where text must not be control flow."""
PURE = (
    "lang/", "cluster/", "framework/", "builtins/", "lint/", "policy/", "fleet/", "tooling/", "editor/", "pages/",
)  # fmt: skip
MOST_PARAMETERS = 9
Function = ast.FunctionDef | ast.AsyncFunctionDef


@contextmanager
def _unseen_by_the_collector() -> Iterator[None]:
    """Keep the garbage collector from what is made, now and later: millions of nodes, and no cycle among them."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Sources:
    """The modules of an engine, parsed once."""

    def __init__(self, engine: Path) -> None:
        self.engine = engine / PACKAGE if (engine / PACKAGE).is_dir() else engine
        self.texts = {
            file.relative_to(self.engine).as_posix(): file.read_text(encoding="utf-8")
            for file in sorted(self.engine.rglob("*.py"))
        }

    @cached_property
    def by_module(self) -> dict[str, tuple[ast.AST, ...]]:
        """Every node of each module; the module itself is the first."""
        with _unseen_by_the_collector():
            return {name: tuple(ast.walk(ast.parse(text))) for name, text in self.texts.items()}

    @cached_property
    def nodes(self) -> list[tuple[str, ast.AST]]:
        """Every node of every module, with the name of the module."""
        by_module = self.by_module
        with _unseen_by_the_collector():
            return [(name, node) for name, nodes in by_module.items() for node in nodes]

    @cached_property
    def functions(self) -> list[tuple[str, Function]]:
        """Every function."""
        return [(name, node) for name, node in self.nodes if isinstance(node, Function)]

    @cached_property
    def classes(self) -> list[tuple[str, ast.ClassDef]]:
        """Every class."""
        return [(name, node) for name, node in self.nodes if isinstance(node, ast.ClassDef)]


def dotted(name: str) -> str:
    """Return how a module is imported."""
    return f"{PACKAGE}.{name.removesuffix('.py').replace('/', '.')}"


def parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters, without `self` and `cls`."""
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def journals_by_hand(sources: Sources) -> Iterator[str]:
    """Yield where a list of changes is cut by hand, outside of the one journal."""
    for name, node in sources.nodes:
        if name == "cluster/journal.py" or not name.startswith(("cluster/", "framework/", "daemon/scheduling/")):
            continue
        if isinstance(node, ast.Delete):
            for target in node.targets:
                match target:
                    case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self")), slice=ast.Slice(lower=None)):
                        yield f"{name}:{node.lineno}"
                    case _:
                        pass


def clocks_set(sources: Sources) -> Iterator[str]:
    """Yield who must be told that the wall clock was set."""
    yield from (name for name, node in sources.functions if node.name == "clock_was_set")


def attributes_by_name(sources: Sources) -> Iterator[str]:
    """Yield where something is asked whether it has an attribute, where plugins are at work."""
    for name, node in sources.nodes:
        match node:
            case ast.Call(func=ast.Name(id="getattr" | "hasattr")) if name.startswith(("framework/", "policy/")):
                yield f"{name}:{node.lineno}"
            case _:
                pass


def texts_as_control_flow(sources: Sources) -> Iterator[str]:
    """Yield where a message or a reason is compared with a text that the program itself wrote."""
    for name, node in sources.nodes:
        if not name.startswith(DECIDES):
            continue
        match node:
            case ast.Compare(left=left, comparators=[right], ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn()]):
                if (is_message(left) and is_own_text(right)) or (is_message(right) and is_own_text(left)):
                    yield f"{name}:{node.lineno}"
            case ast.Call(func=ast.Attribute(value=value, attr="startswith" | "endswith"), args=[text, *_]):
                if is_message(value) and is_own_text(text):
                    yield f"{name}:{node.lineno}"
            case _:
                pass


def sentences_compared(sources: Sources) -> Iterator[str]:
    """Yield where something is compared with a constant that is a text of several words, in the place of a value."""
    sentences: dict[str, set[str]] = {}
    for name, node in sources.nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=constant)], value=ast.Constant(value=str(text))) if (
                " " in text.strip()
            ):
                sentences.setdefault(dotted(name), set()).add(constant)
            case _:
                pass
    known = {name: sentences.get(dotted(name), set()) for name in sources.texts}
    for name, node in sources.nodes:
        if isinstance(node, ast.ImportFrom):
            known[name] = known[name] | {each.name for each in node.names} & sentences.get(node.module or "", set())
    for name, node in sources.nodes:
        if isinstance(node, ast.Compare) and name.startswith(DECIDES):
            parts = [part for each in (node.left, *node.comparators) for part in ast.walk(each)]
            if any(isinstance(part, ast.Name) and part.id in known[name] for part in parts):
                yield f"{name}:{node.lineno} {ast.unparse(node)}"


def deciders(sources: Sources) -> Iterator[str]:
    """Yield who decides pods beside the scheduler and `answer`: who has a cycle, or narrows a gang, by itself."""
    asks = ("framework/", "daemon/", "policy/answer.py", "policy/whole_gang.py")
    for name, node in sources.nodes:
        match node:
            case ast.ImportFrom(names=names) if not name.startswith(asks):
                yield from (f"{name}: {each.name}" for each in names if each.name in ("Cycle", "narrowed"))
            case _:
                pass


def undoable_classes(sources: Sources) -> Iterator[str]:
    """Yield the classes outside of the framework that keep a log of changes of a cluster, to undo them."""
    for name, node in sources.classes:
        methods = {each.name for each in node.body if isinstance(each, Function)}
        if {"undo_to", "mark"} <= methods and not name.startswith("framework/"):
            yield f"{name}: {node.name}"


def is_message(value: ast.expr) -> bool:
    """Return whether an expression is a text for people."""
    match value:
        case ast.Attribute(attr="message" | "rejection" | "refusal"):
            return True
        case ast.Name(id="message" | "rejection" | "refusal"):
            return True
    return False


def is_own_text(value: ast.expr) -> bool:
    """Return whether an expression is a constant text, or is made of one."""
    match value:
        case ast.Constant(value=str(text)):
            return bool(text)
        case ast.Name(id=name):
            return name.isupper()
        case ast.Call(func=ast.Name(id=name)):
            return name.startswith("_")
    return False


def long_signatures(sources: Sources) -> Iterator[str]:
    """Yield the functions with too many parameters; options of commands come by their names."""
    for name, node in sources.functions:
        decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
        is_command = ".command" in decorators or ".option" in decorators
        if len(parameters(node)) > MOST_PARAMETERS and not is_command:
            yield f"{name}: {node.name} has {len(parameters(node))}"


BUDGETS = {"most_work", "in_steps", "at_once", "has_turns", "most_in_turn", "work_left"}
"""What long work was handed instead of being steps that a driver runs (`cluster/steps.py`)."""


def budgets_passed_down(sources: Sources) -> Iterator[str]:
    """Yield the functions that are handed how much work they may do in a turn, or whether to do it in steps."""
    for name, node in sources.functions:
        if BUDGETS & set(parameters(node)):
            yield f"{name}: {node.name}"


def lonely_protocols(sources: Sources) -> Iterator[str]:
    """Yield the protocols of pure packages that one class has, which the same package could name."""
    own = {id(node): members(node) for _, node in sources.classes}
    by_name: dict[str, list[ast.ClassDef]] = {}
    for _, node in sources.classes:
        by_name.setdefault(node.name, []).append(node)

    def inherited(node: ast.ClassDef) -> set[str]:
        """Return what a class and those it is made of have."""
        found, todo, seen = set[str](), [node], {node.name}
        while todo:
            one = todo.pop()
            found |= own[id(one)]
            for name in [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in one.bases]:
                if name not in seen:
                    seen.add(name)
                    todo += by_name.get(name, ())
        return found

    real = [(name, node, inherited(node)) for name, node in sources.classes if not is_protocol(node)]
    for name, node in sources.classes:
        if is_protocol(node) and name.startswith(PURE):
            wanted = own[id(node)] - {"__init__", "__hash__", "__len__"}
            having = [(where, one) for where, one, has in real if wanted <= has]
            if len(having) == 1 and having[0][0].partition("/")[0] == name.partition("/")[0]:
                yield f"{name}: {node.name} is {having[0][1].name}"


def is_protocol(node: ast.ClassDef) -> bool:
    """Return whether a class is a protocol."""
    return any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases)


def members(node: ast.ClassDef) -> set[str]:
    """Return what a class has: methods, fields, and what its methods set."""
    found: set[str] = set()
    for each in node.body:
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found.update(target.id for target in targets if isinstance(target, ast.Name))
            case _:
                pass
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and ast.unparse(inner.value) == "self":
            found.add(inner.attr)
    return found


def metadata_classes(sources: Sources) -> Iterator[str]:
    """Yield the classes for `metadata` of an object."""
    yield from (name for name, node in sources.classes if node.name in ("_Metadata", "Metadata"))


def preludes(sources: Sources) -> Iterator[str]:
    """Yield the commands that read policies, a cluster or metrics by themselves, or render the errors of a file."""
    for name, text in sources.texts.items():
        read = ("cluster_at(", "signals_of(", "rendered(error.diagnostics")
        if name.startswith("cli/commands/") and any(word in text for word in read):
            yield name


QUEUED = {"queued", "member", "assumed.queued", "self.queued"}
"""What a pod in the queue is called."""


def states_moved(sources: Sources) -> Iterator[str]:
    """Yield the modules that write the state of a pod in the queue."""
    for name, node in sources.nodes:
        match node:
            case ast.Attribute(value=holder, attr="state" | "place", ctx=ast.Store()) if ast.unparse(holder) in QUEUED:
                yield name
            case _:
                pass


def twice_named(sources: Sources) -> Iterator[str]:
    """Yield the public classes whose name another public class has, where pods are decided.

    Objects of the API server have the names that they have there.
    """
    names = Counter(
        node.name
        for name, node in sources.classes
        if name.startswith(("cluster/", "framework/", "policy/", "daemon/"))
        and not name.startswith("cluster/objects/")
        and not node.name.startswith("_")
    )
    yield from (name for name, number in sorted(names.items()) if number > 1)


ENDINGS = re.compile("(ing|ers?|s)$")


def like_named_modules(sources: Sources) -> Iterator[str]:
    """Yield the modules of one package whose names differ in their ending alone, such as `counter` and `counters`."""
    modules = [name.removesuffix(".py") for name in sources.texts]
    stems = Counter(ENDINGS.sub("", name) for name in modules)
    yield from (name for name in modules if stems[ENDINGS.sub("", name)] > 1)


def private_overrides(sources: Sources) -> Iterator[str]:
    """Yield the private methods that a class of another module overrides."""
    by_name: dict[str, list[tuple[str, ast.ClassDef]]] = {}
    for name, node in sources.classes:
        by_name.setdefault(node.name, []).append((name, node))
    for name, node in sources.classes:
        own = {each.name for each in node.body if isinstance(each, Function) and is_private(each)}
        for base in node.bases if own else ():
            for where, other in by_name.get(ast.unparse(base).partition("[")[0], ()):
                theirs = {each.name for each in other.body if isinstance(each, Function)}
                if where != name:
                    yield from (f"{name}: {node.name}.{method}" for method in sorted(own & theirs))


def is_private(method: Function) -> bool:
    """Return whether a method is meant for its class alone."""
    return method.name.startswith("_") and not method.name.startswith("__")


def tables_of_groups(sources: Sources) -> Iterator[str]:
    """Yield the modules of the framework that keep something by group, once for each such table."""
    for name, node in sources.nodes:
        match node:
            case ast.AnnAssign(target=ast.Attribute(), annotation=kind) if name.startswith("framework/"):
                if ast.unparse(kind).startswith(("dict[Group,", "set[Group]")):
                    yield f"{name}:{node.lineno}"
            case _:
                pass


def measured_by_hand(sources: Sources) -> Iterator[str]:
    """Yield the classes that say how many bytes they take."""
    for name, node in sources.classes:
        says = any(isinstance(each, Function) and each.name == "bytes" for each in node.body)
        if says and name.startswith(("cluster/", "framework/", "policy/")):
            yield f"{name}: {node.name}"


BOUNDS = ("cluster/", "framework/", "policy/", "builtins/", "daemon/")
TAKES = {"daemon/scheduling/schedule_one.py"}
"""Takes the oldest to work on it."""


def bounded_by_hand(sources: Sources) -> Iterator[str]:
    """Yield where the oldest of a collection is dropped by hand, outside of the one view of kept results."""
    for name, node in sources.nodes:
        if name == "cluster/kept_views.py" or not name.startswith(BOUNDS):
            continue
        match node:
            case ast.Call(func=ast.Attribute(attr="popitem"), keywords=[ast.keyword(arg="last")]):
                yield f"{name}:{node.lineno}"
            case ast.Call(func=ast.Attribute(attr="pop"), args=[oldest, *_]) if is_first(oldest) and name not in TAKES:
                yield f"{name}:{node.lineno}"
            case ast.Delete(targets=[ast.Subscript(slice=oldest)]) if is_first(oldest):
                yield f"{name}:{node.lineno}"
            case _:
                pass


def is_first(value: ast.expr) -> bool:
    """Return whether an expression is the first item of something."""
    return ast.unparse(value).startswith("next(iter(")


COUNTED = re.compile(
    r" (?:pod|node|fixe|test|case|file|queue|policie|member|rule|clause|item|metric|device|claim|change|move)s\b"
)


def counts_of_many(sources: Sources) -> Iterator[str]:
    """Yield `f"{len(pods)} pods"`, which reads "1 pods" for one: `wording.plural` counts."""
    for name, node in sources.nodes:
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in pairwise(node.values):
            match value, text:
                case ast.FormattedValue(value=count), ast.Constant(value=str(noun)) if COUNTED.match(noun):
                    called = ast.unparse(count)
                    if "len(" in called and not called.startswith(("plural(", "part_of(")):
                        yield f"{name}:{node.lineno}"
                case _:
                    pass


def work_in_conditions(sources: Sources) -> Iterator[str]:
    """Yield where a condition does something first and names what came of it, after another condition."""
    for name, node in sources.nodes:
        if isinstance(node, ast.If | ast.While) and isinstance(node.test, ast.BoolOp):
            for each in ast.walk(node.test):
                match each:
                    case ast.NamedExpr(value=ast.Call(func=ast.Attribute(attr=verb))) if verb in VERBS:
                        yield f"{name}:{node.lineno}"
                    case _:
                        pass


VERBS = {"take", "pop", "place", "remove", "refused", "advance", "assume", "add", "popleft", "popitem", "note", "move"}


QUESTION = re.compile("_?(is|has|may|can|must|needs|still|was|does)_")
CHANGING = {"add", "append", "clear", "discard", "extend", "note", "pop", "popitem", "popleft", "remove"}


def questions_that_change(sources: Sources) -> Iterator[str]:
    """Yield the functions that are named as a question, and change the object that is asked."""
    for name, function in sources.functions:
        if QUESTION.match(function.name):
            for node in ast.walk(function):
                match node:
                    case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                        yield f"{name}: {function.name}"
                    case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="self")), attr=verb)):
                        if verb in CHANGING:
                            yield f"{name}: {function.name}"
                    case _:
                        pass


@dataclass(frozen=True)
class Count:
    """One row of the table."""

    what: str
    aim: int
    ceiling: int
    """The number now; it may only fall."""
    found: Callable[[Sources], Iterator[str]]
    why: str = ""
    """Why the aim is not 0."""


TABLE: Sequence[Count] = (
    Count("lists of changes that are not the journal", 0, 0, journals_by_hand),
    Count(
        "who must be told that the clock was set",
        3,
        3,
        clocks_set,
        "past usage and metrics are kept by the wall clock; the scheduler hears of it and tells them",
    ),
    Count("ways to ask for one pod's decision beside `answer`", 0, 0, deciders),
    Count("clusters for trials that can be undone", 1, 1, undoable_classes, "it is the one"),
    Count("attributes of plugins found by name", 0, 0, attributes_by_name),
    Count("messages compared with texts", 0, 0, texts_as_control_flow),
    Count("values compared with sentences", 0, 0, sentences_compared),
    Count(f"functions with more than {MOST_PARAMETERS} parameters", 0, 0, long_signatures),
    Count("signatures that hand a budget or a mode of turns down", 0, 0, budgets_passed_down),
    Count("protocols of one class that the package could name", 0, 0, lonely_protocols),
    Count("classes for metadata beside `ObjectMeta`", 0, 0, metadata_classes),
    Count("commands with a prelude of their own", 1, 1, preludes, "`fmt` goes on after a file that it cannot read"),
    Count(
        "modules that write the state of a pod in the queue",
        1,
        1,
        lambda sources: iter(set(states_moved(sources))),
        "it is the table of transitions",
    ),
    Count("names of classes that two classes have", 0, 0, twice_named),
    Count("modules of a package whose names are alike", 0, 0, like_named_modules),
    Count("private methods that other modules override", 0, 0, private_overrides),
    Count("tables by group", 1, 1, tables_of_groups, "it is the one"),
    Count(
        "classes that measure their bytes",
        1,
        1,
        measured_by_hand,
        "counters grow with each pod: they are measured together when they grew by an eighth, not one by one when kept",
    ),
    Count("collections whose oldest item is dropped by hand", 0, 0, bounded_by_hand),
    Count("functions named as questions that change something", 0, 0, questions_that_change),
    Count("conditions that do something", 0, 0, work_in_conditions),
    Count("counts before a noun that is always plural", 0, 0, counts_of_many),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What there are several of.")
    parser.add_argument("before", nargs="?", type=Path, help="the engine of another source tree")
    parser.add_argument("--where", action="store_true", help="also every place")
    given = parser.parse_args()
    trees = [Sources(path) for path in (given.before, ROOT / "engine") if path is not None]
    print(f"{'what there are several of':58}{'before':>8}{'now':>6}{'aim':>6}" if given.before else "")
    for row in TABLE:
        numbers = [len(list(row.found(tree))) for tree in trees]
        print(f"{row.what:58}" + "".join(f"{number:>8}" for number in numbers) + f"{row.aim:>6}")
        if row.why:
            print(f"    {row.why}")
        if given.where:
            print("".join(f"    {place}\n" for place in row.found(trees[-1])), end="")
    lines = [sum(text.count("\n") for text in tree.texts.values()) for tree in trees]
    print(f"{'lines of the engine':58}" + "".join(f"{number:>8}" for number in lines))


if __name__ == "__main__":
    main()
