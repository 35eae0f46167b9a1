"""P01xx: what can be read but has no meaning: names, types, units, missing values."""

from kube_policy_scheduler.lang.codes import Code

UNKNOWN_NAME = Code(
    "P0101",
    "unknown-name",
    "Nothing has this name: no `let`, `def` or `metric` of this policy or of a file it uses, and nothing built in.",
    bad="filter bussy",
    good="let busy = node.used_fraction.cpu > 80%\nfilter not busy",
)
UNKNOWN_FIELD = Code(
    "P0102",
    "unknown-field",
    "There is no such field. `policyctl fields` lists all of them.",
    bad="filter node.redy",
    good="filter node.ready",
)
UNKNOWN_FUNCTION = Code(
    "P0103",
    "unknown-function",
    "There is no such function, neither built in nor made by `def`. `policyctl functions` lists those built in.",
    bad="filter fit(cpu, mem)",
    good="filter fits(cpu, mem)",
)
WRONG_TYPE = Code(
    "P0104",
    "wrong-type",
    "A value of another kind is wanted here. Nothing is turned into something else silently: a number is not true or"
    " false, and the text of a label is not a number until `number(…)` says so.",
    bad="filter node.free.cpu",
    good="filter node.free.cpu > 500m",
)
UNIT = Code(
    "P0105",
    "unit-mismatch",
    "Amounts of different things are added or compared, such as cpu and bytes. A bare number stands for cpu cores or"
    " for a count, never for bytes or a duration.",
    bad="filter node.free.cpu > 4Gi",
    good="filter node.free.mem > 4Gi",
)
MINUTES = Code(
    "P0106",
    "milli-for-minutes",
    "`m` is always milli, as in `500m`. Minutes are `min`.",
    bad="filter node.age > 5m",
    good="filter node.age > 5min",
)
ARGUMENTS = Code(
    "P0107",
    "wrong-arguments",
    "The function takes other arguments; the help line shows its signature.",
    bad="score clamp(5)",
    good="score clamp(pod.attempts, 0, 5)",
)
NO_NODE = Code(
    "P0108",
    "node-value-without-node",
    "`require`, `hold`, `order`, `limit`, `gang`, `preempt` and `for pods where` speak about the pod alone, before any"
    " node is looked at. What a node must be is said with `filter`.",
    bad="require node.ready",
    good="filter node.ready",
)
NOT_CONSTANT = Code(
    "P0109",
    "not-constant",
    "This has to be written out, so that it is checked now and prepared once: a metric query, a regular expression, a"
    " weight.",
    bad="filter matches(node.name, pod.name)",
    good='filter matches(node.name, "web-.*")',
)
BAD_ARGUMENT = Code(
    "P0110",
    "bad-constant",
    "The text or number written here can't be what the function wants: a regular expression that does not compile, a"
    " time zone that does not exist, a time of day that is none.",
    bad='filter matches(node.name, "web-(")',
    good='filter matches(node.name, "web-.*")',
)
MISSING = Code(
    "P0111",
    "missing-reaches-filter",
    "This value can be missing: a metric without a fresh sample, a division by zero, a label that is not a number. A"
    " filter needs an answer for every node, so the policy says what then holds, with `??` or `is missing`. Without"
    " one, a Prometheus that is down would stop all scheduling.",
    bad='filter promql("cpu_usage") < 80',
    good='filter promql("cpu_usage", max_age=2min) ?? 50 < 80',
)
RECURSION = Code(
    "P0112",
    "recursion",
    "A `let` or `def` uses itself, directly or through others. There is no recursion: every policy ends.",
    bad="let a = b + 1\nlet b = a + 1\nscore a",
    good="let a = 1\nlet b = a + 1\nscore b * node.free.cpu",
)
REDEFINED = Code(
    "P0113",
    "redefined-name",
    "A name has one meaning in a policy, and none of its own where it is built in.",
    bad="let x = 1\nlet x = 2\nscore x * node.free.cpu",
    good="let x = 1\nlet y = 2\nscore (x + y) * node.free.cpu",
)
NOT_HERE = Code(
    "P0114",
    "function-not-here",
    "The function compares nodes with each other, among those that passed every filter: only a score can use it.",
    bad="filter rank(node.free.cpu) > 50",
    good="score rank(node.free.cpu)",
)
COSTLY = Code(
    "P0115",
    "too-costly",
    "Expanded, the expression takes more operations for every pod than a decision may: names that use a name twice,"
    " that uses a name twice, and so on. A whole policy has a limit too, and all policies together have one: for the"
    " steps of checking them, for the `for pods where` conditions, and for the metric queries.",
    bad="\n".join(["let a0 = node.free.cpu", *(f"let a{i + 1} = a{i} + a{i}" for i in range(14)), "score a14"]),
    good="score 16384 * node.free.cpu",
)
DASH = Code(
    "P0116",
    "dash-in-name",
    "After a dot stand letters, digits and `_`; a dash is a minus. Other keys stand in brackets and quotes, or in a"
    " `label` test.",
    bad='filter node.label.disk-type == "ssd"',
    good='filter node.label["disk-type"] == "ssd"',
)
PERCENT = Code(
    "P0117",
    "percent-of-plain-number",
    "`80%` is 0.8, a share. Whether a metric counts from 0 to 1 or from 0 to 100 only you know, so the number is"
    " written as the metric has it.",
    bad='filter promql("cpu_usage") ?? 0 < 80%',
    good='filter promql("cpu_usage") ?? 0 < 80',
)
SCORE_UNIT = Code(
    "P0119",
    "score-with-unit",
    "The scores of a node are added, so each is a plain number (or cpu cores). Bytes and durations are so large that"
    " they would drown everything else: divide them, or bring them to a range.",
    bad="score node.free.mem",
    good="score node.free.mem / 1Gi",
)
KEY = Code(
    "P0120",
    "key-not-of-template",
    "Pods are grouped and counted by what they have from their template: labels, namespace, owner, requests. Names,"
    " annotations and numbers are no keys.",
    bad="spread by pod.attempts",
    good="spread by pod.label.tenant",
)
