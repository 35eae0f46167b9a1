"""P00xx: what can't be read as a policy."""

from kube_policy_scheduler.lang.codes import Code

UNEXPECTED = Code(
    "P0001",
    "unexpected-text",
    "The parser cannot read the statement beyond this point. The help line shows what it expected.",
    bad="score if label gpu",
    good="score 10 if label gpu",
)
TOO_LARGE = Code(
    "P0002",
    "too-large",
    "A policy file, a statement, the nesting of an expression, or all policies together exceed a limit. The"
    " limits are far above the size of real policies. They ensure that every text can be checked within"
    " milliseconds.",
    bad="let x = " + "(" * 70 + "1" + ")" * 70,
    good="let x = 1",
)
UNCLOSED_STRING = Code(
    "P0003",
    "unclosed-string",
    'A string starts with `"` and must end with `"` on the same line. For a quote inside a string, write `\\"`;'
    " for a line break, write `\\n`.",
    bad='require pod label tenant else "no tenant',
    good='require pod label tenant else "no tenant"',
)
BRACKET = Code(
    "P0004",
    "unmatched-bracket",
    "Every `(` needs a `)`, and every `[` needs a `]`. The parser assumes that an open bracket ends where the"
    " next statement begins.",
    bad="filter node.ready and fits(cpu, mem",
    good="filter node.ready and fits(cpu, mem)",
)
FOREIGN_OPERATOR = Code(
    "P0005",
    "foreign-operator",
    "This operator belongs to another language. The policy language uses `and`, `or`, `not`, `==` for equal, `!=`"
    " for not equal, and `# ` for a comment.",
    bad="filter node.ready && fits(cpu)",
    good="filter node.ready and fits(cpu)",
)
UNKNOWN_STATEMENT = Code(
    "P0006",
    "unknown-statement",
    "A statement starts with a keyword: `filter`, `score`, `spread by`, `require` and so on.",
    bad="fliter node.ready",
    good="filter node.ready",
)
NUMBER = Code(
    "P0007",
    "unknown-unit",
    "Write numbers as Kubernetes quantities (`500m`, `2`, `4Gi`, `1500M`, `1e3`), durations as `30s`, `5min`,"
    " `2h`, `7d`, and shares as `80%`.",
    bad="filter node.free.mem > 4GiB",
    good="filter node.free.mem > 4Gi",
)
ESCAPE = Code(
    "P0008",
    "unknown-escape",
    'A string can contain the escapes `\\"`, `\\\\`, `\\n`, `\\t`, and `\\u` with four hexadecimal digits. In a regular'
    " expression, write each backslash twice.",
    bad='filter node.name matches "web-\\d+"',
    good='filter node.name matches "web-\\\\d+"',
)
PART = Code(
    "P0009",
    "misplaced-part",
    "This statement does not allow the part, or contains it twice.",
    bad="filter node.ready weight 2",
    good="filter node.ready",
)
TOO_MANY = Code(
    "P0010",
    "too-many-errors",
    "After many errors, the parser skips the rest of the file, because it is probably not a policy.",
    bad="\n".join(["fliter x"] * 60),
    good="filter node.ready",
)
CHAIN = Code(
    "P0011",
    "chained-comparison",
    "A comparison returns true or false, which you cannot compare with a number. Join two comparisons with `and`.",
    bad="filter 1 < node.free.cpu < 5",
    good="filter 1 < node.free.cpu and node.free.cpu < 5",
)
HIDDEN_CHARACTER = Code(
    "P0012",
    "hidden-character",
    "Control characters, and characters that change the direction of text, make a policy look different from what"
    " it means. They are not allowed anywhere, including comments and strings.",
    bad='require pod label a else "\u202ewhy"',
    good='require pod label a else "why"',
)
FOREIGN_CHARACTER = Code(
    "P0013",
    "unknown-character",
    "The character has no meaning outside strings and comments.",
    bad="filter node.ready; filter fits(cpu)",
    good="filter node.ready\nfilter fits(cpu)",
)
LABEL = Code(
    "P0014",
    "invalid-label",
    "Label keys and values follow the rules of Kubernetes. A key is an optional DNS prefix and `/`, then up to 63"
    " letters, digits, `-`, `_` and `.`; a value has at most 63 such characters. Other texts never match a label.",
    bad='filter label disk="very fast"',
    good='filter label disk="very-fast"',
)
