"""P01xx: what can be read but has no meaning: names, types, units, missing values."""

from kube_policy_scheduler.lang.codes import Code

UNKNOWN_NAME = Code(
    "P0101",
    "unknown-name",
    "The name is not defined: it is not built in, and neither this policy nor a file that it uses has a `let`,"
    " `def` or `metric` with this name.",
    bad="filter bussy",
    good="let busy = node.used_fraction.cpu > 80%\nfilter not busy",
)
UNKNOWN_FIELD = Code(
    "P0102",
    "unknown-field",
    "The field does not exist. `policyctl fields` lists all fields.",
    bad="filter node.redy",
    good="filter node.ready",
)
UNKNOWN_FUNCTION = Code(
    "P0103",
    "unknown-function",
    "The function does not exist: it is not built in, and no `def` defines it. `policyctl functions` lists the"
    " built-in functions.",
    bad="filter fit(cpu, mem)",
    good="filter fits(cpu, mem)",
)
WRONG_TYPE = Code(
    "P0104",
    "wrong-type",
    "The value has the wrong type. There are no implicit conversions: a number is not true or false, and the text"
    " of a label is not a number. To convert a text to a number, use `number(…)`.",
    bad="filter node.free.cpu",
    good="filter node.free.cpu > 500m",
)
UNIT = Code(
    "P0105",
    "unit-mismatch",
    "You cannot add or compare amounts with different units, such as cpu and bytes. A number without a unit means"
    " cpu cores or a count, never bytes or a duration.",
    bad="filter node.free.cpu > 4Gi",
    good="filter node.free.mem > 4Gi",
)
MINUTES = Code(
    "P0106",
    "milli-for-minutes",
    "`m` always means milli, as in `500m`. For minutes, write `min`.",
    bad="filter node.age > 5m",
    good="filter node.age > 5min",
)
ARGUMENTS = Code(
    "P0107",
    "wrong-arguments",
    "The arguments do not match the function. The help line shows its signature.",
    bad="score clamp(5)",
    good="score clamp(pod.attempts, 0, 5)",
)
NO_NODE = Code(
    "P0108",
    "node-value-without-node",
    "`require`, `hold`, `order`, `limit`, `gang`, `preempt` and `for pods where` are evaluated for the pod,"
    " before any node is considered. For conditions on nodes, use `filter`.",
    bad="require node.ready",
    good="filter node.ready",
)
NOT_CONSTANT = Code(
    "P0109",
    "not-constant",
    "This value must be a constant, so that the compiler can check and prepare it: a metric query, a regular"
    " expression, or a weight.",
    bad="filter matches(node.name, pod.name)",
    good='filter matches(node.name, "web-.*")',
)
BAD_ARGUMENT = Code(
    "P0110",
    "bad-constant",
    "The constant is not valid for this function: for example, a regular expression does not compile, or a time"
    " zone or a time of day does not exist.",
    bad='filter matches(node.name, "web-(")',
    good='filter matches(node.name, "web-.*")',
)
MISSING = Code(
    "P0111",
    "missing-reaches-filter",
    "This value can be missing: a metric without a fresh sample, a division by zero, or a label that is not a"
    " number. A filter needs a result for every node, so add a default value with `??`, or test with `is"
    " missing`. Otherwise, scheduling would stop whenever Prometheus is down.",
    bad='filter promql("cpu_usage") < 80',
    good='filter promql("cpu_usage", max_age=2min) ?? 50 < 80',
)
RECURSION = Code(
    "P0112",
    "recursion",
    "A `let` or `def` uses itself, directly or through others. The language has no recursion, so that every"
    " policy terminates.",
    bad="let a = b + 1\nlet b = a + 1\nscore a",
    good="let a = 1\nlet b = a + 1\nscore b * node.free.cpu",
)
REDEFINED = Code(
    "P0113",
    "redefined-name",
    "A name can have only one meaning in a policy, and you cannot redefine built-in names.",
    bad="let x = 1\nlet x = 2\nscore x * node.free.cpu",
    good="let x = 1\nlet y = 2\nscore (x + y) * node.free.cpu",
)
NOT_HERE = Code(
    "P0114",
    "function-not-here",
    "The function compares the nodes that passed every filter, so you can use it only in a score.",
    bad="filter rank(node.free.cpu) > 50",
    good="score rank(node.free.cpu)",
)
COSTLY = Code(
    "P0115",
    "too-costly",
    "After expansion, the expression needs more operations for each pod than the limit. This happens if a name"
    " uses another name twice, which uses another name twice, and so on. There are also limits for a policy, and"
    " for all policies together: for the steps of the check, the `for pods where` conditions, and the metric"
    " queries.",
    bad="\n".join(["let a0 = node.free.cpu", *(f"let a{i + 1} = a{i} + a{i}" for i in range(14)), "score a14"]),
    good="score 16384 * node.free.cpu",
)
DASH = Code(
    "P0116",
    "dash-in-name",
    "After a dot, only letters, digits and `_` are allowed, and a dash means minus. Write other keys in brackets"
    " and quotes, or use a `label` test.",
    bad='filter node.label.disk-type == "ssd"',
    good='filter node.label["disk-type"] == "ssd"',
)
PERCENT = Code(
    "P0117",
    "percent-of-plain-number",
    "`80%` means 0.8, a share. The compiler does not know whether the metric ranges from 0 to 1 or from 0 to 100,"
    " so write the number in the scale of the metric.",
    bad='filter promql("cpu_usage") ?? 0 < 80%',
    good='filter promql("cpu_usage") ?? 0 < 80',
)
SCORE_UNIT = Code(
    "P0119",
    "score-with-unit",
    "The scores of a node are added, so each must be a plain number (or cpu cores). Bytes and durations are so"
    " large that other scores would have no effect. Divide them, or scale them to a range.",
    bad="score node.free.mem",
    good="score node.free.mem / 1Gi",
)
KEY = Code(
    "P0120",
    "key-not-of-template",
    "You can group pods only by fields of their template: labels, namespace, owner, requests. Names, annotations"
    " and numbers cannot be keys.",
    bad="spread by pod.attempts",
    good="spread by pod.label.tenant",
)
