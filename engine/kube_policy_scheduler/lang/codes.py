"""What a diagnostic code is, and the codes P0xxx: what can be wrong with a policy."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Fix, Label, Severity, Span


class Code(msgspec.Struct, frozen=True):
    """One kind of problem: never renumbered, never reused."""

    id: str
    name: str
    """Reads well after "allow": `unknown-field`."""
    explanation: str
    """What it means and why it is refused, in sentences."""
    bad: str
    """A policy that has the problem and no other."""
    good: str
    """What to write instead."""
    severity: Severity = Severity.ERROR

    def at(
        self,
        span: Span,
        message: str,
        *,
        help: str = "",  # noqa: A002  (the word that users see)
        labels: Iterable[Label] = (),
        notes: Iterable[str] = (),
        fix: Fix | None = None,
    ) -> Diagnostic:
        """Return the diagnostic of this problem at a place."""
        return Diagnostic(self.id, self.severity, message, span, help, tuple(labels), tuple(notes), fix)


def codes_in(module: ModuleType) -> dict[str, Code]:
    """Return the codes defined in a module, by id."""
    found = sorted((v for v in vars(module).values() if isinstance(v, Code)), key=lambda code: code.id)
    return {code.id: code for code in found}


def page(code: Code) -> str:
    """Return the page that `policyctl explain-code` shows, as Markdown."""
    return (
        f"# {code.id}: {code.name} ({code.severity.value})\n\n{code.explanation.strip()}\n\n"
        f"## Refused\n\n{_block(code.bad)}\n\n## Instead\n\n{_block(code.good)}\n"
        if code.severity is Severity.ERROR
        else f"# {code.id}: {code.name} ({code.severity.value})\n\n{code.explanation.strip()}\n\n"
        f"## Avoid\n\n{_block(code.bad)}\n\n## Prefer\n\n{_block(code.good)}\n"
    )


def _block(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip("\n").split("\n"))


# --- P00xx: what cannot be read as a policy ------------------------------------------------------------

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

# --- P01xx: what can be read but has no meaning: names, types, units, missing values ------------------

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
    "The function compares the nodes that passed every filter, so you can use it only in a score; or it is about one"
    " device of a node, so you can use it only in `devices by`.",
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

# --- P02xx: what is wrong with a policy as a whole, or with policies together -------------------------

REPEATED = Code(
    "P0201",
    "repeated-statement",
    "A policy can contain this statement only once. This applies to `policy`, `scheduler`, `for pods where`,"
    " `priority`, `order`, `preempt`, `ties` and `devices`, and to `language` in a file.",
    bad="priority 1\npriority 2\nfilter node.ready",
    good="priority 2\nfilter node.ready",
)
HEADER_IN_USED = Code(
    "P0202",
    "header-in-used-file",
    "A file that others include with `use` is a part of their policies, not a policy of its own. It cannot set a"
    " name, scheduler, pods or priority.",
    bad="# in common.policy, which another file uses\npriority 10",
    good="# in common.policy\nfilter node.ready",
)
NO_FILE = Code(
    "P0203",
    "unknown-file",
    'The file in `use "…"` does not exist. The path is relative to the file with the `use` line.',
    bad='use "comon.policy"',
    good="use kubernetes",
)
CYCLE = Code(
    "P0204",
    "use-cycle",
    "A file includes itself, directly or through others.",
    bad='# in a.policy\nuse "a.policy"',
    good="use kubernetes",
)
SAME_NAME = Code(
    "P0205",
    "same-policy-name",
    "Two policies have the same name, so decisions, metrics and tests could not distinguish them. A policy"
    " without a `policy` line has the name of its file.",
    bad="# in a.policy\npolicy batch\n# in b.policy\npolicy batch",
    good="# in a.policy\npolicy batch\n# in b.policy\npolicy interactive",
)
NO_PLUGIN = Code(
    "P0206",
    "unknown-plugin",
    "After `use kubernetes without`, write names of kube-scheduler's default filters. After `use kubernetes scores"
    " without` (or `with`), write names of its default scores.",
    bad="use kubernetes without NodePort",
    good="use kubernetes without NodePorts",
)
OUT_OF_RANGE = Code(
    "P0207",
    "number-out-of-range",
    "A weight or the bound of a limit must be 0 or more, a priority must be a whole number, and a skew or size must be"
    " a whole number of at least 1. The number of a `let` with a range must be inside the range.",
    bad="score node.free.cpu weight -1",
    good="score -node.free.cpu weight 1",
)
SAME_CLAUSE = Code(
    "P0208",
    "same-clause-name",
    "Two clauses of a policy have the same name, so tests and metrics could not distinguish them.",
    bad="filter node.ready as ok\nfilter fits(cpu) as ok",
    good="filter node.ready as ready\nfilter fits(cpu) as room",
)
UNSTABLE = Code(
    "P0209",
    "unstable-input",
    "The governing policy of a pod and which `order by` applies to it are determined when the pod arrives: they cannot"
    " depend on the clock, a metric, or the state of the cluster. The keys of `order by` can depend on the clock and on"
    " metrics, but not on nodes or other pods. The keys of `devices by` can depend only on the devices of a node.",
    bad="order by count(p in cluster.pods) desc",
    good="order by pod.waiting desc",
)
MEASURE = Code(
    "P0210",
    "unknown-measure",
    "`limit` adds up a number over the pods with the same key: `sum(request.cpu)`, the sum of another number of"
    " the pod, or `count()`.",
    bad="limit request.cpu by pod.label.tenant to 100",
    good="limit sum(request.cpu) by pod.label.tenant to 100",
)
NO_CHOICE = Code(
    "P0212",
    "unknown-choice",
    "Ties are broken `by hash` (seeded, the default) or `by name` (the smallest). Devices are selected `by fullest`,"
    ' `emptiest`, `fragmentation` or `random`, or by values such as `device_value("memory")`. A spread counts `all`,'
    " `tainted` or `filtered nodes`.",
    bad="ties by age",
    good="ties by name",
)
NO_STABLE = Code(
    "P0213",
    "unknown-stable-policy",
    "A canary governs some pods of another policy. That policy must exist, and must not be a canary. If you check"
    " only one file, also pass the file of the stable policy.",
    bad="# in batch.policy\nfilter node.ready\n# in batch-next.policy\ncanary of bach for 10%\nfilter fits(cpu)",
    good="# in batch.policy\nfilter node.ready\n# in batch-next.policy\ncanary of batch for 10%\nfilter fits(cpu)",
)
CANARY_HEADER = Code(
    "P0214",
    "header-in-canary",
    "A canary uses the scheduler, pods and priority of its stable policy, so it cannot set any of them.",
    bad="# in a.policy\nfilter node.ready\n# in b.policy\ncanary of a for 10%\npriority 10\nfilter fits(cpu)",
    good="# in a.policy\npriority 10\nfilter node.ready\n# in b.policy\ncanary of a for 10%\nfilter fits(cpu)",
)
SECOND_CANARY = Code(
    "P0215",
    "second-canary",
    "A policy can have only one canary at a time: with two, you could not see the effect of each change.",
    bad="# in a.policy\nfilter node.ready\n# in b.policy\ncanary of a for 10%\nfilter fits(cpu)\n# in c.policy\n"
    "canary of a for 10%\nfilter fits(mem)",
    good="# in a.policy\nfilter node.ready\n# in b.policy\ncanary of a for 10%\nfilter fits(cpu)",
)
NOT_ALLOWED = Code(
    "P0216",
    "not-allowed",
    "The policy belongs to an owner, and the administrator does not allow this owner to use the statement, the"
    " scheduler name, or metrics. `policies.owners` of the scheduler's configuration says what each owner may use.",
    bad="# owner team-a\npreempt if pod.priority > 1000\nfilter node.ready",
    good="# owner team-a\nfilter node.ready",
)
PRIORITY_TOO_HIGH = Code(
    "P0217",
    "priority-too-high",
    "The policy belongs to an owner, and its priority is above the owner's `maxPriority`. Otherwise an owner could"
    " take pods away from the policies of others, or of the administrator.",
    bad="# owner team-a\npriority 1000\nfilter node.ready",
    good="# owner team-a\npriority 0\nfilter node.ready",
)
LANGUAGE = Code(
    "P0218",
    "unknown-language",
    "The file is written in a version of the language that this program does not know. A version is a whole number from"
    " 1 to the newest. `policies/VERSIONS.md` says what changed in each.",
    bad="language 0\nfilter node.ready",
    good="language 2\nfilter node.ready",
)
LANGUAGE_LATE = Code(
    "P0219",
    "language-not-first",
    "`language` applies to the whole file, so it is the first statement. Comments can stand above it.",
    bad="filter node.ready\nlanguage 2",
    good="language 2\nfilter node.ready",
)
QUEUE_TREE = Code(
    "P0220",
    "queue-tree",
    "The queues of all policies together form trees. Each queue has a name of its own, its parent exists, no queue is"
    " its own ancestor, and queues `by` a key have no children. A canary uses the queues of its stable policy.",
    bad='queue research of compny for pods where pod.namespace == "research" min cpu 40',
    good='queue company max cpu 64\nqueue research of company for pods where pod.namespace == "research" min cpu 40',
)
QUEUE_AMOUNT = Code(
    "P0221",
    "queue-amount",
    "The amounts of a queue contradict each other: `min` is at most `max`, and `lend` is at most `min`.",
    bad="queue company min cpu 64 max cpu 40",
    good="queue company min cpu 40 max cpu 64",
)
QUEUE_SHARE = Code(
    "P0222",
    "queue-share",
    "`order by queue.share` orders pods fairly among queues. The share changes with each pod that gets a node, so the"
    " other keys stay the same while pods wait, and the order cannot be strict or descending.",
    bad="queue company max cpu 64\norder by queue.share, pod.waiting desc",
    good="queue company max cpu 64\norder by queue.share, pod.priority desc, pod.queued",
)
NO_RESOURCE = Code(
    "P0223",
    "unknown-resource",
    "The name is not a resource that pods can request: `cpu`, `memory`, `ephemeral-storage`, `pods`, or an extended"
    " resource such as `nvidia.com/gpu`.",
    bad="queue company max gpu 64",
    good="queue company max nvidia.com/gpu 64",
)
SUBJECT = Code(
    "P0224",
    "wrong-subject",
    "A policy is about pods, which go to nodes, or with `for workloads where …` about workloads, which go to the"
    " clusters of a fleet. Each has its own fields (`pod.…`, `node.…`; `workload.…`, `cluster.…`) and some statements"
    " of its own, such as `gang` and `divide`.",
    bad="for workloads where true\nfilter node.ready",
    good="for workloads where true\nfilter cluster.ready",
)
BUILTIN_NAME = Code(
    "P0211",
    "builtin-name",
    "The name is built in. You cannot redefine it, because that would change the meaning of other lines.",
    bad="def clamp(x) = x\nscore clamp(node.free.cpu)",
    good="def limited(x) = clamp(x, 0, 10)\nscore limited(node.free.cpu)",
)
