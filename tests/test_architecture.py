"""The laws of the source tree: what each package may use, and what the pure core may not. Read with `ast`.

Which package may import which is in `[tool.importlinter]` of pyproject.toml; `make lint` checks it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.mechanisms import TABLE, Count, Sources

ROOT = Path(__file__).parents[1]
PACKAGE = "kube_policy_scheduler"
ENGINE = ROOT / "engine" / PACKAGE

TOP_LEVEL = {
    ".ci",
    ".github",
    ".gitignore",
    ".pre-commit-config.yaml",
    ".pre-commit-hooks.yaml",
    "LICENSE",
    "Makefile",
    "README.md",
    "deploy",
    "docs",
    "editors",
    "engine",
    "examples",
    "grammar",
    "policies",
    "pyproject.toml",
    "requirements-dev.lock",
    "requirements-fast.lock",
    "requirements-fuzz.lock",
    "requirements-onnx.lock",
    "requirements.lock",
    "tests",
}
"""What is committed at the top: whatever else is there came from a slip of a shell."""

MAY_USE: dict[str, set[str]] = {
    "diagnostics": {"msgspec"},
    "installation": set(),
    "times": set(),
    "wording": set(),
    "loopback": set(),
    "kubernetes_rules": set(),
    "client_mistakes": {"aiohttp"},
    "patterns": {"re2"},
    "remembered": set(),
    "lines": {"msgspec"},
    "lang": {"lark", "msgspec", "numpy"},
    "quantities": {"msgspec"},
    "cel": {"msgspec"},
    "cluster": {"cel_expr_python", "msgspec", "numpy"},
    "framework": {"msgspec", "numpy"},
    "documents": {"jsonschema", "msgspec", "yaml"},
    "builtins": {"msgspec", "numpy"},
    "extensions": {"numpy", "onnxruntime"},
    "lint": {"msgspec", "promql_parser"},
    "policy": {"msgspec", "numpy", "promql_parser"},
    "fleet": {"msgspec", "numpy"},
    "tooling": {"msgspec", "numpy", "promql_parser"},
    "editor": {"numpy", "pygments", "yaml"},
    "pages": {"jinja2", "matplotlib", "msgspec"},
    "adapters": {
        "aiohttp", "cryptography", "distributed", "google", "grpc", "highspy", "hpack", "httptools", "joblib",
        "kubernetes", "msgspec", "numba", "numpy", "opentelemetry", "optuna", "orjson", "prometheus_api_client",
        "prometheus_client", "promql_parser", "pyarrow", "ray", "requests", "urllib3", "watchdog", "yaml", "zlib_ng",
    },
    "embedded": {"aiohttp", "msgspec", "orjson", "yaml"},
    "daemon": {"aiohttp", "click", "msgspec", "numpy", "orjson", "prometheus_client"},
    "playground": {"aiohttp", "msgspec", "numpy", "orjson"},
    "cli": {"click", "lsprotocol", "msgspec", "pygls"},
    "demo": {"aiohttp", "kubernetes", "rich", "urllib3", "yaml"},
}  # fmt: skip
"""For each package, the third-party packages that it may import."""

ONLY_IN: dict[str, str] = {
    "google": r"adapters/grpc/estimator_\w+\.py",
    "grpc": r"adapters/grpc/\w+\.py",
    "lark": r"lang/reading/(parse|lower)\w*\.py",
    "jsonschema": r"documents/schema\.py",
    "kubernetes": r"adapters/kube/\w+\.py|demo/pods\.py",
    "prometheus_api_client": r"adapters/prometheus/\w+\.py",
    "re2": r"patterns\.py",
    "rich": r"demo/(fleet/)?screen\.py",
    "watchdog": r"adapters/files/\w+\.py",
}
"""Clients whose errors and types stay in one place."""

PURE = (
    "diagnostics",
    "times",
    "wording",
    "loopback",
    "kubernetes_rules",
    "patterns",
    "remembered",
    "lines",
    "lang",
    "quantities",
    "cel",
    "cluster",
    "framework",
    "builtins",
    "lint",
    "policy",
    "fleet",
    "tooling",
    "editor",
    "pages",
)
WORLD = {
    "asyncio", "concurrent", "ctypes", "fcntl", "getpass", "glob", "http", "logging", "multiprocessing", "os",
    "pathlib", "platform", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl",
    "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
"""Modules that know the clock, chance, files, sockets, threads or the process: the pure core is handed these."""
WORLD_CALLS = {"open", "input", "print", "breakpoint", "exec", "eval"}
CLOCK_CALLS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}

WHOLE = {
    "benchmarks", "conformance", "deploy", "faults", "fuzz", "growth", "integration", "quotas", "simulation",
}  # fmt: skip
"""Folders of tests that try the whole scheduler, or what is shipped with it. All others mirror the engine."""

OPTIONAL = {
    "distributed": "adapters/process/parallel.py",
    "google": "adapters/grpc/",
    "grpc": "adapters/grpc/",
    "highspy": "adapters/compute/integer_programs.py",
    "joblib": "adapters/process/parallel.py",
    "lsprotocol": "cli/language_server.py",
    "matplotlib": "pages/charts.py",
    "numba": "adapters/compute/compiled_kernels.py",
    "onnxruntime": "extensions/onnx_worker.py",
    "optuna": "adapters/compute/optimizer.py",
    "opentelemetry": "adapters/open_telemetry.py",
    "pyarrow": "adapters/files/parquet_table.py",
    "pygls": "cli/language_server.py",
    "ray": "adapters/process/parallel.py",
    "pygments": "editor/pygments_lexer.py",
    "zlib_ng": "adapters/compute/inflating.py",
}
"""Imported inside functions by the one module that works without it for all but what it needs it for, or by a module
or package that is itself imported only then."""

DISTRIBUTION = {"yaml": "pyyaml", "re2": "google-re2", "opentelemetry": "opentelemetry-sdk", "zlib_ng": "zlib-ng"}
"""Packages on the index whose name is not that of the import."""


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    module: str

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def package_of(file: Path) -> str:
    """Return the part of the engine that a file belongs to; its own name for modules at the top."""
    return file.relative_to(ENGINE).with_suffix("").parts[0]


@cache
def sources() -> Sources:
    return Sources(ROOT / "engine")


def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Return all parts of a module, itself first: parsed and walked once for all laws."""
    return sources().by_module[file.relative_to(ENGINE).as_posix()]


def tree(file: Path) -> ast.Module:
    module = nodes(file)[0]
    assert isinstance(module, ast.Module)
    return module


@cache
def imports(file: Path) -> tuple[Import, ...]:
    return tuple(_imports(file))


def _imports(file: Path) -> Iterator[Import]:
    for node in nodes(file):
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import"
            module = node.module or ""
            if (ROOT / "engine" / module.replace(".", "/")).is_dir():  # a module of the package, or a name in it
                yield from (Import(file, node.lineno, f"{module}.{alias.name}") for alias in node.names)
            else:
                yield Import(file, node.lineno, module)


FILES = sorted(path for path in ENGINE.rglob("*.py") if path != ENGINE / "__init__.py")


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for file in FILES for found in imports(file))


def third_party(found: Import) -> bool:
    return found.top not in sys.stdlib_module_names and found.top != PACKAGE


def names(problems: list[Import]) -> str:
    return "\n".join(str(found) for found in problems)


def test_every_package_of_the_engine_has_its_laws() -> None:
    packages = {package_of(file) for file in FILES}
    assert packages == MAY_USE.keys(), "say in MAY_USE what a new package may use"


MAY_NOTE: dict[str, set[str]] = {
    "daemon/scheduling/event_handlers.py": {"POLICY", "SIGNALS"},
    "daemon/scheduling/gated_pods.py": {"CLOCK"},
    "framework/backfill/backfill.py": {"RESERVATION"},
    "framework/queue/scheduling_queue.py": {"RESERVATION"},
    "tooling/simulation/run.py": {"SIGNALS"},
}
"""Outside `cluster`, who notes which events in its ledger: what is not in the cluster. All else it notes itself."""


def test_what_changes_in_the_cluster_is_noted_by_the_cluster_alone() -> None:
    found: dict[str, set[str]] = {}
    for file in FILES:
        for node in nodes(file):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "note":
                for event in node.args[:1]:
                    if isinstance(event, ast.Attribute) and ast.unparse(event.value) == "ClusterEvent":
                        found.setdefault(file.relative_to(ENGINE).as_posix(), set()).add(event.attr)
    assert {name: events for name, events in found.items() if not name.startswith("cluster/")} == MAY_NOTE


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.what)
def test_there_are_no_more_of(row: Count) -> None:
    """What stays above its aim may only fall: lower the ceiling in `tests/mechanisms.py` with it."""
    found = list(row.found(sources()))
    assert bool(row.why) is (row.aim > 0), "say in one sentence why some may stay"
    assert len(found) <= row.ceiling, f"{len(found)}, at most {row.ceiling}:\n" + "\n".join(found)


def test_third_party_packages_stay_where_they_belong() -> None:
    wrong = [
        found for found in all_imports() if third_party(found) and found.top not in MAY_USE[package_of(found.file)]
    ]
    assert not wrong, names(wrong)


def test_the_official_client_is_imported_by_one_thread_at_a_time() -> None:
    open_to_others = []
    for file in {found.file for found in all_imports() if found.top == "kubernetes"}:
        held = [node for node in nodes(file) if isinstance(node, ast.With) and ast.unparse(node.items[0]) == "ALONE"]
        alone = {inner for each in held for inner in ast.walk(each)}
        for function in (node for node in nodes(file) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            for inner in ast.walk(function):
                name = str(inner.module) if isinstance(inner, ast.ImportFrom) else ""
                if name.partition(".")[0] == "kubernetes" and inner not in alone:
                    open_to_others.append(f"{file.relative_to(ROOT)}:{inner.lineno}")

    assert open_to_others == []


@pytest.mark.parametrize("client", ONLY_IN)
def test_only_one_place_knows(client: str) -> None:
    wrong = [
        found
        for found in all_imports()
        if found.top == client and not re.fullmatch(ONLY_IN[client], found.file.relative_to(ENGINE).as_posix())
    ]
    assert not wrong, names(wrong)


SEARCHES = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
"""Functions of `re` that take a pattern first."""
PATTERNS_OF_SCHEMAS = {"documents/schema.py", "editor/yaml_texts.py"}
"""Modules that search with the `pattern` and `patternProperties` of our own JSON schemas, as jsonschema does."""


def foreign_parts(pattern: ast.expr) -> Iterator[str]:
    """Yield what a pattern is made of that is not written in the code: neither constants nor escaped texts."""
    match pattern:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="escape")):
            return
        case ast.Name(id=name) if not name.isupper():
            yield name
        case ast.Attribute(value=ast.Name(id="self")):
            yield ast.unparse(pattern)
        case ast.IfExp(body=one, orelse=other):
            yield from foreign_parts(one)
            yield from foreign_parts(other)
        case ast.Call(func=ast.Name(), args=arguments):
            for argument in arguments:
                yield from foreign_parts(argument)
        case _:
            for part in ast.iter_child_nodes(pattern):
                if isinstance(part, ast.expr):
                    yield from foreign_parts(part)


@pytest.mark.parametrize(
    ("pattern", "foreign"),
    [
        ('r"[a-z]+"', []),
        ('rf"{NAME}|{re.escape(text)}"', []),
        ('WANTED.schema["pattern"]', []),
        ('"a" if word else "b"', []),
        ('"|".join(sorted(WORDS))', []),
        ("text[1:-1]", ["text"]),
        ("self.pattern", ["self.pattern"]),
        ('f"({word})"', ["word"]),
        ('"(" + matcher.value + ")"', ["matcher"]),
        ("str(pattern)", ["pattern"]),
    ],
)
def test_a_pattern_is_ours_if_it_is_written_in_the_code(pattern: str, foreign: list[str]) -> None:
    assert list(foreign_parts(ast.parse(pattern, mode="eval").body)) == foreign


def test_python_searches_only_with_patterns_of_our_own() -> None:
    """Python's `re` may search for ever; what others write is compiled by `patterns.py`."""
    wrong = []
    for file in FILES:
        if file.relative_to(ENGINE).as_posix() in PATTERNS_OF_SCHEMAS:
            continue
        for node in nodes(file):
            match node:
                case ast.ImportFrom(module="re") | ast.Import(names=[ast.alias(name="re", asname=str())]):
                    wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}: write `import re`, so that the law sees it")
                case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name)) if name in SEARCHES:
                    foreign = list(foreign_parts(node.args[0])) if node.args else ["its first argument"]
                    if foreign:
                        wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}: who writes {', '.join(foreign)}?")
                case _:
                    pass
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", PURE)
def test_the_pure_core_is_handed_the_world(package: str) -> None:
    mine = [file for file in FILES if package_of(file) == package]
    wrong = [str(found) for file in mine for found in imports(file) if found.top in WORLD]
    for file in mine:
        for node in nodes(file):
            if not isinstance(node, ast.Call):
                continue
            match node.func:
                case ast.Name(id=name) if name in WORLD_CALLS:
                    wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} calls {name}()")
                case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in CLOCK_CALLS:
                    wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} calls {owner}.{name}()")
                case _:
                    pass
    assert not wrong, "\n".join(wrong)


def test_what_is_imported_is_declared() -> None:
    declared = {
        re.split(r"[\[<>=!~;\s]", line, maxsplit=1)[0].lower().replace("_", "-")
        for line in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    }
    needed = [
        found
        for found in all_imports()
        if third_party(found) and not re.match(OPTIONAL.get(found.top, "$"), found.file.relative_to(ENGINE).as_posix())
    ]
    imported = {DISTRIBUTION.get(found.top, found.top.replace("_", "-")) for found in needed}
    assert imported <= declared, f"missing in pyproject.toml: {sorted(imported - declared)}"
    unused = declared - imported - {"tzdata"}  # data that the standard library's zoneinfo finds by itself
    assert not unused, f"declared in pyproject.toml, imported nowhere: {sorted(unused)}"


def test_the_locks_hold_what_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {"requirements.lock": project["dependencies"]}
    wanted["requirements-dev.lock"] = project["dependencies"] + project["optional-dependencies"]["dev"]
    for lock, lines in wanted.items():
        text = (ROOT / lock).read_text(encoding="utf-8")
        locked = set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))
        named = {re.split(r"[\[<>=!~;\s]", line, maxsplit=1)[0].lower().replace("_", "-") for line in lines}
        assert named <= locked, f"{lock} lacks {sorted(named - locked)}: make lock"
        assert "://" not in text, f"{lock} names a host"


@pytest.mark.long
def test_the_top_level_holds_nothing_else() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git repository")
    assert {line.partition("/")[0] for line in listed.stdout.splitlines()} == TOP_LEVEL


def test_every_module_begins_with_its_purpose() -> None:
    silent = [file.relative_to(ROOT).as_posix() for file in FILES if not ast.get_docstring(tree(file))]
    assert not silent, f"no docstring: {silent}"


DETAILED = ("adapters", "cluster", "fleet", "framework")
"""The packages whose own packages are on the map, too."""
_ON_MAP = re.compile(r"(?<!\S)[a-z_]+(?:/[a-z_]+)*(?:/|\.py)(?![^\s,])")


def test_every_room_is_on_the_map() -> None:
    """A stranger finds a package by its name, and no name leads nowhere."""
    page = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    plan = page.partition(f"engine/{PACKAGE}/\n")[2].partition("\ndeploy/")[0]
    found, room = set[str](), ""
    for line in plan.splitlines():
        for name in _ON_MAP.findall(line):
            if line.startswith(f"  {name}"):
                room = name
            found.add(name if name.endswith(".py") or name == room else f"{room}{name}")
    inside = [file.relative_to(ENGINE).parts for file in FILES]
    rooms = {f"{parts[0]}/" if len(parts) > 1 else parts[0] for parts in inside if parts[0] != "grammar"}
    rooms |= {f"{parts[0]}/{parts[1]}/" for parts in inside if len(parts) > 2 and parts[0] in DETAILED}
    assert sorted(rooms - found - {f"{name.partition('/')[0]}/" for name in found}) == [], "say what they are there"
    assert [name for name in sorted(found) if not (ENGINE / name).exists()] == []


def test_the_layout_of_the_tests_mirrors_the_engine() -> None:
    tests = ROOT / "tests"
    folders = {file.parent.relative_to(tests) for file in tests.rglob("test_*.py")} - {Path()}
    lost = [
        str(folder) for folder in sorted(folders) if folder.parts[0] not in WHOLE and not (ENGINE / folder).is_dir()
    ]
    assert not lost, f"the engine has no such folders: {lost}"
    gone = [folder for folder in sorted(WHOLE) if not (tests / folder).is_dir() or (ENGINE / folder).exists()]
    assert not gone, f"not folders of tests of the whole: {gone}"


STEADY = ("cluster", "framework", "policy", "daemon/scheduling", "daemon/modes")
KEEPS_WALL_TIME = {
    "daemon/scheduling/past_usage.py: _stored_at": "people read it",
    "framework/evaluate/metric_readings.py: _since": "values hold from this moment until another; both are looked at",
}
"""What may keep a time of the wall clock in the packages above, and why it does not matter that it may go back."""


def wall_times_kept(module: ast.Module) -> Iterator[str]:
    """Return which attributes get a value that is made of a time of the wall clock, directly or by way of a local name.

    Such a time is `frame.now`, what `wall()` returns, or a sum with how far the wall clock is ahead.
    """
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        known: set[str] = set()
        for statement in ast.walk(function):
            if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) or statement.value is None:
                continue
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            pairs = [(target, statement.value) for target in targets]
            while pairs:
                target, value = pairs.pop()
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs += zip(target.elts, value.elts, strict=True)
                elif not is_of_wall(value, known):
                    continue
                elif isinstance(target, ast.Name):
                    known.add(target.id)
                elif isinstance(kept := target.value if isinstance(target, ast.Subscript) else target, ast.Attribute):
                    yield kept.attr


def is_of_wall(value: ast.expr, known: set[str]) -> bool:
    """Return whether a value is a time of the wall clock: one as it is, or a sum or difference with one.

    A comparison is not one, nor is what a call makes of it.
    """
    match value:
        case ast.Attribute(value=ast.Name(id="frame"), attr="now") | ast.Attribute(attr="ahead"):
            return True
        case (
            ast.Call(func=ast.Attribute(attr="wall"))
            | ast.Call(func=ast.Attribute(attr="time", value=ast.Name("time")))
        ):
            return True
        case ast.Name(id=name):
            return name in known
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            return is_of_wall(left, known) or is_of_wall(right, known)
        case ast.BinOp(left=left, right=right, op=ast.Sub()):
            return is_of_wall(left, known) != is_of_wall(right, known)
        case ast.Call(func=ast.Name(id="min" | "max"), args=arguments):
            return any(is_of_wall(each, known) for each in arguments)
        case ast.IfExp(body=body, orelse=other):
            return is_of_wall(body, known) or is_of_wall(other, known)
        case ast.Dict(values=values):
            return any(is_of_wall(each, known) for each in values)
        case ast.Tuple(elts=values) | ast.List(elts=values):
            return any(is_of_wall(each, known) for each in values)
    return False


def test_no_time_of_the_wall_clock_is_kept_where_pods_are_decided() -> None:
    """It may go back by hours: a pause that is kept so would last as much longer. See `times.Steady`."""
    files = [file for package in STEADY for file in sorted((ENGINE / package).rglob("*.py"))]
    found = {f"{file.relative_to(ENGINE)}: {kept}" for file in files for kept in wall_times_kept(tree(file))}

    assert found == KEEPS_WALL_TIME.keys()


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("self.due = frame.now + RETRY_SECONDS", True),
        ("self.due[key] = frame.now + RETRY_SECONDS", True),
        ("now = context.wall()\n    at, until = 0.0, now + 5\n    self.due[key] = until", True),
        ("record.until = max(0.0, self.queued + cluster.ahead)", True),
        ("self.paused = frame.now < until", False),
        ("self.seconds = frame.now - (queued + cluster.ahead)", False),
        ("self.due = frame.steady + RETRY_SECONDS", False),
    ],
)
def test_what_is_said_to_keep_a_time_of_the_wall_clock(text: str, is_kept: bool) -> None:
    assert bool(list(wall_times_kept(ast.parse(f"def f():\n    {text}\n")))) is is_kept
