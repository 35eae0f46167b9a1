"""Random policies: well-formed ones from the grammar, in any layout, and texts that are nearly policies, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Tokens = list[str]

NAMES = [
    "x",
    "busy",
    "load",
    "cpu",
    "mem",
    "node",
    "zone",
    "cluster",
    "p",
    "victim",
    "size",
    "default",
    "policy",
    "max",
]
"""Some are words of statements too, which are names all the same where a value stands."""
FIELDS = [
    "node.ready", "node.name", "node.free.cpu", "node.free.mem", "node.used_fraction.cpu", "node.zone", "node.age",
    "node.taints", "node.label.disk", 'node.label["x/y"]', "node.pods", "zone.pods", "cluster.pods", "pod.priority",
    "pod.namespace", "pod.label.tenant", "pod.request.cpu", "pod.waiting", "pod.attempts", "pod.annotation.paused",
    'node.free["nvidia.com/gpu"]', "pod.tolerations", "node.images",
]  # fmt: skip
NUMBERS = ["0", "1", "2", "100", "0.5", ".5", "1.", "1e3", "500m", "4Gi", "1500M", "30s", "5min", "7d", "80%"]
STRINGS = ['"a"', '""', '"batch"', '"a b, (c) # d"', r'"\"\\\n"', r'"\u00e9\u200b"', '"web-[0-9]+"', '"漢“"', '"up"']
FUNCTIONS = [
    "fits", "tolerated", "least_allocated", "balanced", "normalize", "scale", "rank", "clamp", "abs", "round", "log",
    "startswith", "lower", "hour", "between", "promql", "predicted", "domain", "ports_free", "f",
]  # fmt: skip
AGGREGATES = ["count", "sum", "min", "max", "avg", "any", "all"]
KEYS = ["disk", "gpu", "topology.kubernetes.io/zone", "a.b/c_d", "not", "in"]
VALUES = ["ssd", "1", "v1.2", "a-b_c", '"ssd"', '""', "and"]
OBJECTS = ["batch", "a-b.c", "7", "if", "x_1"]
COMMENTS = [
    "# why",
    "#why",
    "#",
    "##",
    "#!x",
    '# "quoted" (and',
    "# filter node.ready",
    "#é漢“",
    "#\tindented",
    "# a  #",
]

_COMPARATORS = ["==", "!=", "<", "<=", ">", ">=", "in", "not in", "matches"]
_CONDITIONAL, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _COALESCE, _UNARY, _POSTFIX = range(10)


def _separated(lists: Sequence[Tokens], separator: str = ",") -> Tokens:
    out: Tokens = []
    for at, tokens in enumerate(lists):
        out += [separator, *tokens] if at else tokens
    return out


def _atom(draw: DrawFn) -> Tokens:
    # a number has a space behind it: before a dot or a letter it would be another number
    kind = draw(st.integers(0, 5))
    choices = (NAMES, FIELDS, FIELDS, NUMBERS, STRINGS, ["true", "false"])[kind]
    return [draw(st.sampled_from(choices))]


def _label_test(draw: DrawFn) -> Tokens:
    subject = draw(st.sampled_from(["label", "pod label"]))
    key, values = draw(st.sampled_from([*KEYS, '"disk"'])), draw(st.lists(st.sampled_from(VALUES), min_size=1))
    operator = draw(st.sampled_from(["", "=", " == ", "!=", " in ", " notin ", " not in "]))
    if not operator:
        return [f"{subject} {key}"]
    if operator.strip() in ("in", "notin", "not in"):
        return [f"{subject} {key}{operator}", "(", *_separated([[value] for value in values]), ")"]
    return [f"{subject} {key}{operator}{values[0]}"]


def _call(draw: DrawFn, depth: int) -> Tokens:
    arguments = [_expr(draw, depth - 1) for _ in range(draw(st.integers(0, 3)))]
    if draw(st.booleans()):
        arguments.append([draw(st.sampled_from(["max_age", "scale", "by"])), "=", *_expr(draw, depth - 1)])
    comma = [","] if arguments and draw(st.booleans()) else []
    return [draw(st.sampled_from(FUNCTIONS)), "(", *_separated(arguments), *comma, ")"]


def _aggregate(draw: DrawFn, depth: int) -> Tokens:
    function, variable = draw(st.sampled_from(AGGREGATES)), draw(st.sampled_from(["p", "other"]))
    value = [*_expr(draw, depth - 1), "for"] if draw(st.booleans()) else []
    if value and draw(st.integers(0, 3)) == 0:
        value = ["distinct", *draw(st.sampled_from([["p.label.job"], ["n.zone"], ["lower", "(", "i", ")"]])), "for"]
    collection = draw(
        st.sampled_from(
            [
                ["node.pods"],
                ["zone.pods"],
                ["cluster.pods"],
                ["domain", "(", '"rack"', ")", ".pods"],
                ["cluster.nodes"],
                ["zone.nodes"],
                ["domain", "(", '"rack"', ")", ".nodes"],
                ["pod.images"],
                ["node.taints"],
            ]
        )
    )
    where = ["where", *_expr(draw, depth - 1)] if draw(st.booleans()) else []
    return [function, "(", *value, variable, "in", *collection, *where, ")"]


def _postfix(draw: DrawFn, depth: int) -> Tokens:
    base = _expr(draw, depth - 1, _POSTFIX)
    if base[-1][0] in "0123456789.":
        base = ["(", *base, ")"]
    if draw(st.booleans()):
        return [*base, "." + draw(st.sampled_from(["a", "cpu", "if", "and"]))]
    return [*base, "[", *_expr(draw, depth - 1), "]"]


def _chain(operators: list[str], binds: int) -> Callable[[DrawFn, int], Tokens]:
    def chain(draw: DrawFn, depth: int) -> Tokens:
        tokens = _expr(draw, depth - 1, binds)
        for _ in range(draw(st.integers(1, 3))):
            tokens = [*tokens, draw(st.sampled_from(operators)), *_expr(draw, depth - 1, binds + 1)]
        return tokens

    return chain


_FORMS: list[tuple[int, Callable[[DrawFn, int], Tokens]]] = [
    (_POSTFIX, lambda draw, depth: _atom(draw)),
    (
        _CONDITIONAL,
        lambda draw, depth: [
            "if", *_expr(draw, depth - 1), "then", *_expr(draw, depth - 1), "else", *_expr(draw, depth - 1),
        ],
    ),
    (_OR, _chain(["or"], _OR)),
    (_AND, _chain(["and"], _AND)),
    (_NOT, lambda draw, depth: ["not", *_expr(draw, depth - 1, _NOT)]),
    (_NOT, lambda draw, depth: _label_test(draw)),
    (
        _COMPARE,
        lambda draw, depth: [
            *_expr(draw, depth - 1, _SUM), draw(st.sampled_from(_COMPARATORS)), *_expr(draw, depth - 1, _SUM),
        ],
    ),
    (
        _COMPARE,
        lambda draw, depth: [*_expr(draw, depth - 1, _SUM), draw(st.sampled_from(["is missing", "is not missing"]))],
    ),
    (_SUM, _chain(["+", "-"], _SUM)),
    (_PRODUCT, _chain(["*", "/", "%"], _PRODUCT)),
    (_COALESCE, _chain(["??"], _COALESCE)),
    (_UNARY, lambda draw, depth: ["-", *_expr(draw, depth - 1, _UNARY)]),
    (_POSTFIX, _call),
    (_POSTFIX, _aggregate),
    (_POSTFIX, _postfix),
    (
        _POSTFIX,
        lambda draw, depth: [
            "[", *_separated([_expr(draw, depth - 1) for _ in range(draw(st.integers(0, 3)))]), "]",
        ],
    ),
]  # fmt: skip


def _expr(draw: DrawFn, depth: int, place: int = _CONDITIONAL) -> Tokens:
    """Draw an expression for a place where its surroundings bind as tightly as `place` says."""
    binds, form = _FORMS[draw(st.integers(0, len(_FORMS) - 1)) if depth > 0 else 0]
    tokens = form(draw, depth)
    bare = binds >= place and draw(st.integers(0, 7)) > 0
    return tokens if bare else ["(", *tokens, ")"]


@st.composite
def expressions(draw: DrawFn, depth: int = 3) -> Tokens:
    """Expressions as tokens; those with spaces inside stay on one line."""
    return _expr(draw, depth)


# --- statements -----------------------------------------------------------------------------------------------

_PARTS: dict[str, SearchStrategy[Tokens]] = {
    "as": st.sampled_from(OBJECTS).map(lambda name: [f"as {name}"]),
    "if": expressions(2).map(lambda tokens: ["if", *tokens]),
    "else": st.sampled_from(STRINGS).map(lambda text: ["else", text]),
    "weight": expressions(1).map(lambda tokens: ["weight", *tokens]),
    "over": st.sampled_from([*KEYS, '"rack"']).map(lambda key: [f"over {key}"]),
    "max skew": expressions(0).map(lambda tokens: ["max skew", *tokens]),
    "min domains": expressions(0).map(lambda tokens: ["max skew", "1", "min domains", *tokens]),
    "counting": st.sampled_from(["all", "tainted", "tainted, filtered"]).map(
        lambda which: ["max skew", "1", f"counting {which} nodes"]
    ),
    "target": st.sampled_from(["spot 70%", '"a" 0.5, b-c 20%']).map(lambda which: [f"target {which}"]),
    "with": st.sampled_from(["1 of role=driver", '1 of "a/b" , 2 of c in (d, "e")', "pod.priority of x!=y"]).map(
        lambda roles: [f"with {roles}"]
    ),
    "within": expressions(0).map(lambda tokens: ["within", *tokens]),
    "within one": st.sampled_from(["rack", '"a b" or zone', "rack or topology.kubernetes.io/block or any"]).map(
        lambda levels: [f"within one {levels}"]
    ),
    "every": expressions(0).map(lambda tokens: ["every", *tokens]),
    "stale after": expressions(0).map(lambda tokens: ["stale after", *tokens]),
    "default": expressions(1).map(lambda tokens: ["default", *tokens]),
    "by": st.sampled_from(KEYS).map(lambda key: [f"by {key}"]),
}


def _parts(draw: DrawFn, *words: str) -> Tokens:
    chosen = draw(st.lists(st.sampled_from(words), unique=True, max_size=4))
    for word in ("max skew", "min domains"):  # the other two bring a `max skew` of their own
        if word in chosen and len({"max skew", "min domains", "counting"}.intersection(chosen)) > 1:
            chosen.remove(word)
    return [token for word in chosen for token in draw(_PARTS[word])]


def _one(draw: DrawFn) -> Tokens:
    name, thing = draw(st.sampled_from(["x", "load", "f", "busy"])), draw(st.sampled_from(OBJECTS))
    plugins = st.lists(st.sampled_from(["NodePorts", "ImageLocality", "VolumeZone"]), min_size=1, unique=True)
    kind = draw(st.integers(0, 20))
    match kind:
        case 0:
            return [f"policy {thing}"]
        case 1:
            return [f"scheduler {thing}"]
        case 2:
            return ["for pods", "where", *_expr(draw, 3)]
        case 3:
            return ["priority", *_expr(draw, 1)]
        case 4:
            return ["use kubernetes"]
        case 5:
            return ["use kubernetes without", *_separated([[p] for p in draw(plugins)])]
        case 6:
            return ["use kubernetes scores", *_parts(draw, "weight")]
        case 7:
            return ["use", draw(st.sampled_from(['"common.policy"', '"a b.policy"']))]
        case 8 | 9:
            return ["let", name, "=", *_expr(draw, 4)]
        case 10:
            parameters = draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True))
            return ["def", name, "(", *_separated([[p] for p in parameters]), ")", "=", *_expr(draw, 3)]
        case 11:
            return ["metric", name, "=", *_expr(draw, 1), *_parts(draw, "every", "stale after", "default", "by")]
        case 12 | 13:
            word = draw(st.sampled_from(["require", "filter"]))
            return [word, *_expr(draw, 4), *_parts(draw, "as", "if", "else")]
        case 14:
            return ["score", *_expr(draw, 4), *_parts(draw, "as", "if", "weight")]
        case 15:
            return ["hold", "if", *_expr(draw, 3), *_parts(draw, "as", "else")]
        case 16:
            keys = [
                [*_expr(draw, 1), *draw(st.sampled_from([[], ["asc"], ["desc"]]))]
                for _ in range(draw(st.integers(1, 3)))
            ]
            return ["order", "by", *_separated(keys)]
        case 17:
            words = ("over", "max skew", "min domains", "counting", "as", "if", "else", "weight")
            return ["spread", "by", *_expr(draw, 1), *_parts(draw, *words)]
        case 18:
            return ["pack", "by", *_expr(draw, 1), *_parts(draw, "over", "as", "if", "weight")]
        case 19:
            measure, key, bound = _expr(draw, 2), _expr(draw, 1), _expr(draw, 1)
            return ["limit", *measure, "by", *key, "to", *bound, *_parts(draw, "as", "if", "else")]
        case _:
            if draw(st.booleans()):
                evict = ["evict where", *_expr(draw, 2)] if draw(st.booleans()) else []
                return draw(st.sampled_from([["preempt", "never"], ["preempt", "if", *_expr(draw, 2), *evict]]))
            return [
                "gang",
                "by",
                *_expr(draw, 1),
                "size",
                *_expr(draw, 1),
                *_parts(draw, "with", "within", "within one", "as", "if"),
            ]


@st.composite
def statements(draw: DrawFn) -> Tokens:
    """Statements as tokens."""
    return _one(draw)


# --- layout ---------------------------------------------------------------------------------------------------

_GOES_ON = frozenset({
    "and", "or", "not", "in", "not in", "is missing", "matches", "then", "else", "if", "by", "to", "weight", "within",
    "size", "max skew", "min domains", "every", "stale after", "default", "evict where", "where", "+", "-", "*", "/",
    "%", "==", "!=", "<", "<=", ">", ">=", ",", "??", "=",
})  # fmt: skip
_BEGINS = frozenset({"policy"})
"""Of the names, the one that a statement begins with: a new line with it would be taken for one.

For the same reason no line ends after the first word of a statement.
"""
_TIGHT = frozenset("()[],")


def plain(tokens: Tokens) -> str:
    """Return a statement with a space between all tokens."""
    return " ".join(tokens)


@st.composite
def laid_out(draw: DrawFn, tokens: Tokens, *, comments: bool = True) -> str:
    """A statement's tokens with any spaces, line ends and comments that the language allows between them."""
    gaps = draw(st.lists(st.integers(0, 11), min_size=len(tokens), max_size=len(tokens)))
    out, depth = [tokens[0]], tokens[0].count("(")
    for before, token, gap in zip(tokens, tokens[1:], gaps[1:], strict=False):
        goes_on = token not in _BEGINS and (depth > 0 or (token in _GOES_ON and before != token))
        depth += (token in ("(", "[")) - (token in (")", "]"))
        if goes_on and gap > 8 and out[1:]:
            comment = draw(st.sampled_from(COMMENTS)) if comments and gap > 9 else ""
            own = draw(st.booleans()) if comment else False
            out += ["\n" if own else " ", comment, "\n", " " * (gap - 8)]
        elif out[1:] and gap < 3 and (token in _TIGHT or before in _TIGHT) and not _merges(before, token):
            pass
        else:
            out.append(("  ", "\t", " ")[gap % 3 if gap < 5 else 2])
        out.append(token)
    return "".join(out)


def _merges(before: str, token: str) -> bool:
    """Return whether two tokens without a space between them say something else."""
    percent = before[-1] == "%" or token[0] == "%"
    return percent or before.endswith(("label", " in ")) or (before[-1] in ")]" and token[0].isalnum())


@st.composite
def programs(draw: DrawFn, *, comments: bool = True, max_statements: int = 5) -> str:
    """Well-formed files; what they say need have no meaning."""
    first = draw(st.sampled_from(["", "", "language 1", "language 2"]))
    lines = [first] if first else []
    for tokens in draw(st.lists(statements(), max_size=max_statements)):
        before = draw(st.lists(st.sampled_from(["", *(COMMENTS if comments else ())]), max_size=3))
        behind = draw(st.sampled_from(["", "", *(f" {c}" for c in (COMMENTS if comments else ()))]))
        lines += [*before, draw(laid_out(tokens, comments=comments)) + behind]
    lines += draw(st.lists(st.sampled_from(["", *(COMMENTS if comments else ())]), max_size=2))
    return draw(st.sampled_from(["\n", "\n", "\r\n"])).join(lines)


# --- what is no policy ------------------------------------------------------------------------------------------

_KEYWORDS = (
    "policy scheduler for pods where priority use kubernetes without scores let def metric every stale after default"
    " ties devices require filter score hold order asc desc spread pack limit gang size within preempt never evict by"
    " to as weight over max skew min domains if then else not and or in notin is missing matches true false label pod"
    " node distinct language"
)
_MARKS = "== != <= >= < > = ?? + - * / % . , ( ) [ ] # & | ! ; { } ' \" \\ ` ~ ^ $ @ :"
_ODD = [
    "\n", "\n\n", "\r", "\t", "\x00", "\ufeff", "\u202e", "\u00a0", "\u2028", "4GiB", "5m", "\u0430nd", "１", "²",
    "999999999999e9", "1e999", '"\\q"', '"\\u12"', '"\\ud800"', "ſ", "İ",
]  # fmt: skip
_WORDS = [*_KEYWORDS.split(), *_MARKS.split(), *NAMES, *NUMBERS, *STRINGS, *KEYS, *COMMENTS, *_ODD]


def soups() -> SearchStrategy[str]:
    """Words of the language, and of others, in any order."""
    return st.lists(st.sampled_from(_WORDS), max_size=40).flatmap(
        lambda words: st.sampled_from([" ", "", "\n"]).map(lambda between: between.join(words))
    )


@st.composite
def mutated(draw: DrawFn) -> str:
    """Well-formed files with a few places damaged."""
    text = draw(programs())
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 6)))
        match draw(st.integers(0, 3)):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:end] + text[start:]
            case 2:
                text = text[:start] + draw(st.sampled_from(_WORDS)) + text[end:]
            case _:
                text = text[:start] + draw(st.characters()) + text[end:]
    return text


def texts() -> SearchStrategy[str]:
    """Anything that may be given as a policy."""
    return st.one_of(programs(), mutated(), soups(), st.text())
