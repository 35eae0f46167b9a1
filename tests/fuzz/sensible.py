"""Random policies that mostly mean something: typed expressions over real fields and builtins."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn


@dataclass(frozen=True)
class Scope:
    """What can be named in a statement, by type."""

    numbers: list[str]
    units: list[list[str]]
    """Numbers of one unit each: they mix with their own kind only."""
    maybe: list[str]
    """Numbers that may be missing; `numbers` never are."""
    texts: list[str]
    lists: list[str]
    truths: list[str]
    collections: list[str]


POD = Scope(
    numbers=[
        "0", "1", "2.5", "-3", "100", "1e30", "1e-30", "pod.priority", "pod.attempts", "hour()", "weekday()",
        "length(pod.name)", "number(pod.label.rank) ?? 1", "count(p in cluster.pods)",
    ],
    maybe=["number(pod.label.rank)", "1 / pod.attempts", "log(pod.priority)", "avg(p.priority for p in cluster.pods)"],
    units=[
        ["4Gi", "500Mi", "pod.request.mem", "pod.limit.mem"],
        ["30s", "5min", "7d", "pod.waiting", "now() - pod.created", "now() - pod.queued"],
        ["500m", "pod.request.cpu", "pod.limit.cpu", "sum(p.request.cpu for p in cluster.pods)"],
    ],
    texts=[
        '"a"', '""', '"7"', '"web-1"', "pod.name", "pod.namespace", "pod.label.tenant", "pod.qos", "pod.owner.kind",
        "pod.service_account", "pod.annotation.note", "lower(pod.name)", 'split(pod.name, "-")[0]',
    ],
    lists=["pod.images", "pod.tolerations", '["a", "b"]', '["7"]', "pod.volumes", "pod.node_selector"],
    truths=[
        "true", "pod label tenant", "pod label tenant!=red", "pod.label.tenant", "pod label a in (b, c)",
        'between("22:00", "06:00", "Asia/Shanghai")', 'pod.name matches "web-.*"', 'startswith(pod.name, "w")',
    ],
    collections=["cluster.pods"],
)  # fmt: skip
NODE = Scope(
    numbers=[
        *POD.numbers, 'promql("load") ?? 50', "node.free.pods", "node.volumes_attached", "count(p in node.pods)",
    ],
    maybe=[
        *POD.maybe, 'promql("up", max_age=1min)', 'node.free["nvidia.com/gpu"]', "number(node.label.rank)",
        'predicted(promql("load"), 10)', "node.free.pods / node.volumes_attached", "sqrt(pod.priority)",
        'node.free["a/b"] ?? 1', "max(p.priority for p in node.pods)",
    ],
    units=[
        [*POD.units[0], "node.free.mem", "node.allocatable.mem", "node.free.ephemeral_storage"],
        [*POD.units[1], "node.age"],
        [*POD.units[2], "node.free.cpu", "node.allocatable.cpu", "node.requested.cpu"],
        ["80%", "0%", "node.used_fraction.cpu", "node.used_fraction.mem"],
    ],
    texts=[
        *POD.texts, "node.name", "node.zone", "node.region", "node.arch", "node.label.disk", "node.annotation.note",
        "node.conditions.Ready", 'split("a,b", ",")[9]',
    ],
    lists=[*POD.lists, "node.taints", "node.images"],
    truths=[
        *POD.truths, "node.ready", "node.unschedulable", "fits()", "fits(cpu, mem)", "tolerated()", "ports_free()",
        "matches_affinity()", "topology_ok()", "volumes_ok()", "label disk", "label disk=ssd", "label a notin (a, b)",
    ],
    collections=[*POD.collections, "node.pods", "zone.pods", 'domain("rack").pods'],
)  # fmt: skip
SCORE = replace(
    NODE,
    numbers=[
        *NODE.numbers, "least_allocated(cpu, mem)", "most_allocated()", "balanced(cpu, mem)", "image_locality()",
        "node_preference()", "pod_preference()", "taint_preference()", "even_spread()", "rank(node.free.cpu)",
        "normalize(node.free.mem)",
    ],
)  # fmt: skip
ARRIVAL = replace(POD, numbers=["0", "1", "pod.priority", "length(pod.name)", "number(pod.label.rank) ?? 1"])
"""What is known of a pod when it arrives, and stays."""
MEMBERS = ["p.priority", "1", "p.priority * 2", "length(p.name)"]
MEMBER_TESTS = [
    'p.label.tenant == "red"', "p.label.tenant == pod.label.tenant", "p.priority > pod.priority",
    "p.request.cpu > 500m",
    "p.namespace != pod.namespace", "p.label.tenant", "not p.label.x", 'p.label.tenant in ["red", pod.label.tenant]',
]  # fmt: skip
PATTERNS = ["web-[0-9]+", "(a+)+b", ".*", "^$", "\\\\d{3,}", "(?i)A|b", "[", "\\\\C"]


def _number(draw: DrawFn, scope: Scope, depth: int, *, certain: bool = False) -> str:
    """Draw a number; a certain one is never missing."""
    if depth <= 0:
        return draw(st.sampled_from(scope.numbers))

    def inner() -> str:
        return _number(draw, scope, depth - 1, certain=certain)

    match draw(st.integers(0, 8 if certain else 11)):
        case 0 | 1:
            return f"({inner()}) {draw(st.sampled_from('+-*'))} ({inner()})"
        case 2:
            return f"-({inner()})"
        case 3:
            return f"({draw(st.sampled_from(scope.maybe))}) ?? ({inner()})"
        case 4:
            return f"if {_truth(draw, scope, depth - 1, certain=certain)} then {inner()} else {inner()}"
        case 5:
            function = draw(st.sampled_from(["abs", "round", *(["normalize", "rank"] * (scope is SCORE))]))
            return f"{function}({inner()})"
        case 6:
            return f"{draw(st.sampled_from(['clamp', 'scale']))}({inner()}, {inner()}, {inner()})"
        case 7:
            return f"{draw(st.sampled_from(['min', 'max']))}({inner()}, {inner()})"
        case 8:
            function = draw(st.sampled_from(["count", "sum"] if certain else ["count", "sum", "min", "max", "avg"]))
            return _fold(draw, scope, function)
        case 9:
            return f"({inner()}) {draw(st.sampled_from('/%'))} ({inner()})"
        case 10:
            return draw(st.sampled_from([*scope.maybe, f"log({inner()})", f"sqrt({inner()})"]))
        case _:
            unit = draw(st.sampled_from(scope.units))
            return f"({draw(st.sampled_from(unit))}) / ({draw(st.sampled_from(unit))})"


def _fold(draw: DrawFn, scope: Scope, function: str) -> str:
    pods, where = draw(st.sampled_from(scope.collections)), draw(st.sampled_from(["", *MEMBER_TESTS]))
    tail = f" where {where}" if where else ""
    if function == "count":
        return f"count(p in {pods}{tail})"
    return f"{function}({draw(st.sampled_from(MEMBERS))} for p in {pods}{tail})"


def _text(draw: DrawFn, scope: Scope) -> str:
    return draw(st.sampled_from(scope.texts))


def _truth(draw: DrawFn, scope: Scope, depth: int, *, certain: bool = False) -> str:
    """Draw a truth; a certain one is never missing."""
    if depth <= 0:
        return draw(st.sampled_from(scope.truths))
    match draw(st.integers(0, 10)):
        case 0 | 1:
            operator = draw(st.sampled_from(["and", "or"]))
            left, right = (_truth(draw, scope, depth - 1, certain=certain) for _ in range(2))
            return f"({left}) {operator} ({right})"
        case 2:
            return f"not ({_truth(draw, scope, depth - 1, certain=certain)})"
        case 3 | 4:
            operator = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
            a, b = (_number(draw, scope, depth - 1, certain=certain) for _ in range(2))
            return f"({a}) {operator} ({b})"
        case 5:
            return f"({_text(draw, scope)}) {draw(st.sampled_from(['==', '!=']))} ({_text(draw, scope)})"
        case 6:
            values = draw(st.sampled_from([*scope.lists, f"[{_text(draw, scope)}, {_text(draw, scope)}]"]))
            return f"({_text(draw, scope)}) {draw(st.sampled_from(['in', 'not in']))} ({values})"
        case 7:
            return f'({_text(draw, scope)}) matches "{draw(st.sampled_from(PATTERNS))}"'
        case 8:
            asked = draw(st.sampled_from([_number(draw, scope, depth - 1, certain=certain), _text(draw, scope)]))
            return f"({asked}) is {draw(st.sampled_from(['missing', 'not missing']))}"
        case 9:
            unit = draw(st.sampled_from(scope.units))
            a, b, c = (draw(st.sampled_from(unit)) for _ in range(3))
            return f"{a} {draw(st.sampled_from('+-'))} ({b}) {draw(st.sampled_from(['<', '>=']))} ({c})"
        case _:
            pods, test = draw(st.sampled_from(scope.collections)), draw(st.sampled_from(MEMBER_TESTS))
            return draw(st.sampled_from([f"any(p in {pods} where {test})", f"all({test} for p in {pods})"]))


def _certain(draw: DrawFn, scope: Scope, depth: int) -> str:
    return _truth(draw, scope, depth, certain=draw(st.integers(0, 9)) > 0)


def _statement(draw: DrawFn, at: int) -> str:
    condition = f" if {_certain(draw, NODE, 1)}" if draw(st.integers(0, 3)) == 0 else ""
    about_pod = f" if {_certain(draw, POD, 1)}" if draw(st.integers(0, 3)) == 0 else ""
    key = draw(st.sampled_from(["pod.label.tenant", "pod.namespace", "pod.owner.name", "pod.label.job"]))
    over = draw(st.sampled_from(["", " over zone", " over rack", " over topology.kubernetes.io/zone"]))
    match draw(st.integers(0, 14)):
        case 0 | 1 | 2:
            return f"filter {_certain(draw, NODE, 3)}{condition}"
        case 3 | 4 | 5:
            weight = draw(st.sampled_from(["", " weight 2", " weight 0.5", " weight 0"]))
            return f"score {_number(draw, SCORE, 3)}{condition}{weight}"
        case 6:
            return f'require {_certain(draw, POD, 2)}{about_pod} else "no"'
        case 7:
            return f"hold if {_certain(draw, POD, 2)}"
        case 8:
            return f"order by {_number(draw, ARRIVAL, 2)} desc, {_number(draw, ARRIVAL, 0)}"
        case 9:
            skew = draw(st.sampled_from(["", " max skew 1", " max skew 2 min domains 2"]))
            return f"spread by {key}{over}{skew}{about_pod}"
        case 10:
            return f"pack by {key}{over}{about_pod}"
        case 11:
            measure = draw(st.sampled_from(["count()", "sum(1)", "sum(request.cpu)", "sum(request.mem)"]))
            bound = draw(st.sampled_from(["10", "1Gi", "500m", _number(draw, POD, 1, certain=True)]))
            return f"limit {measure} by {key} to {bound}{about_pod}"
        case 12:
            return f"gang by {key} size {_number(draw, POD, 1, certain=True)} within 5min"
        case 13:
            test = draw(st.sampled_from(["victim.priority < pod.priority", 'victim.label.tenant == "red"', "true"]))
            return f"preempt if {_certain(draw, POD, 1)} evict where {test}"
        case _:
            return f"let x{at} = {_number(draw, NODE, 2, certain=True)}\nscore x{at} + 1\nfilter (x{at} > 0)"


@st.composite
def sensible(draw: DrawFn) -> str:
    """Files whose statements mostly have a meaning."""
    lines = [_statement(draw, at) for at in range(draw(st.integers(1, 3)))]
    header = draw(
        st.sampled_from(["", "use kubernetes scores\n", "use kubernetes without NodePorts\n", "priority 3\n"])
    )
    return header + "\n".join(lines) + "\n"
