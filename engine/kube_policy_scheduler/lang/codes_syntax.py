"""P00xx: what can't be read as a policy."""

from kube_policy_scheduler.lang.codes import Code

UNEXPECTED = Code(
    "P0001",
    "unexpected-text",
    "The statement can't be read past this point. The help line says what could stand there.",
    bad="score if label gpu",
    good="score 10 if label gpu",
)
TOO_LARGE = Code(
    "P0002",
    "too-large",
    "A policy file, a statement, the nesting in one expression, or all policies together are larger than any real"
    " ones. The limits keep reading a policy a matter of milliseconds, whatever the text.",
    bad="let x = " + "(" * 70 + "1" + ")" * 70,
    good="let x = 1",
)
UNCLOSED_STRING = Code(
    "P0003",
    "unclosed-string",
    'A string begins with `"` and has to end with `"` on the same line. Write `\\"` for a quote inside it and `\\n`'
    " for a line break.",
    bad='require pod label tenant else "no tenant',
    good='require pod label tenant else "no tenant"',
)
BRACKET = Code(
    "P0004",
    "unmatched-bracket",
    "Every `(` and `[` needs its `)` and `]`. A bracket that is never closed ends where the next statement begins.",
    bad="filter node.ready and fits(cpu, mem",
    good="filter node.ready and fits(cpu, mem)",
)
FOREIGN_OPERATOR = Code(
    "P0005",
    "foreign-operator",
    "This is how another language writes it. Here it is `and`, `or`, `not`, `==` for equal, `!=` for not equal, and"
    " `# ` for a comment.",
    bad="filter node.ready && fits(cpu)",
    good="filter node.ready and fits(cpu)",
)
UNKNOWN_STATEMENT = Code(
    "P0006",
    "unknown-statement",
    "A line begins with the word that says what it does: `filter`, `score`, `spread by`, `require` and so on.",
    bad="fliter node.ready",
    good="filter node.ready",
)
NUMBER = Code(
    "P0007",
    "unknown-unit",
    "Numbers are written as Kubernetes writes quantities (`500m`, `2`, `4Gi`, `1500M`, `1e3`), durations as `30s`,"
    " `5min`, `2h`, `7d`, shares as `80%`.",
    bad="filter node.free.mem > 4GiB",
    good="filter node.free.mem > 4Gi",
)
ESCAPE = Code(
    "P0008",
    "unknown-escape",
    'In a string, `\\"`, `\\\\`, `\\n`, `\\t` and `\\u` with four hexadecimal digits have a meaning. A regular'
    " expression's backslash is written twice.",
    bad='filter node.name matches "web-\\d+"',
    good='filter node.name matches "web-\\\\d+"',
)
PART = Code(
    "P0009",
    "misplaced-part",
    "The part does not belong to this statement, or stands in it twice.",
    bad="filter node.ready weight 2",
    good="filter node.ready",
)
TOO_MANY = Code(
    "P0010",
    "too-many-errors",
    "After many lines that can't be read, the rest of the file is not looked at: it is probably no policy.",
    bad="\n".join(["fliter x"] * 60),
    good="filter node.ready",
)
CHAIN = Code(
    "P0011",
    "chained-comparison",
    "A comparison gives true or false, which can't be compared again. Two comparisons are joined with `and`.",
    bad="filter 1 < node.free.cpu < 5",
    good="filter 1 < node.free.cpu and node.free.cpu < 5",
)
HIDDEN_CHARACTER = Code(
    "P0012",
    "hidden-character",
    "Control characters and marks that change the direction of text make a policy look different from what it says."
    " They are refused everywhere, also in comments and strings.",
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
    "Keys and values of labels follow Kubernetes' rules: a key is an optional DNS prefix and `/`, then up to 63"
    " letters, digits, `-`, `_` and `.`; a value is at most 63 such characters. Nothing else can ever match.",
    bad='filter label disk="very fast"',
    good='filter label disk="very-fast"',
)
