"""Spellings of other languages and files, and what to write here: tables that messages are made from.

Knows Rego, CEL, Python, SQL, PromQL, YAML and the Kubernetes API as users remember them, not as they are defined.
"""

# ruff: noqa: E501  (an entry a line)

from __future__ import annotations

import re
from collections.abc import Iterable

from kube_policy_scheduler.lang import statements
from kube_policy_scheduler.lang.environment import Field
from kube_policy_scheduler.lang.signature import Builtin

OPERATORS = {
    "&&": "and", "||": "or", "!": "not", "&": "and", "|": "or", "<>": "!=", "===": "==", "!==": "!=", "=~": "matches",
    "=": "==", "?:": "??", "!~": "not … matches", "~": "matches", ":=": "=",
}  # fmt: skip
"""Signs, and what to write for them."""

SURE_OPERATORS = frozenset({"&&", "||", "!", "&", "|", "<>", "===", "!==", "=", ":=", "=~"})
"""Those with one meaning: they can be replaced without asking."""

_YAML = (
    "this is YAML; in a ConfigMap, the policy is the text below `NAME.policy: |` in `data`, and only that is checked"
)
_REFUSE = "write `filter not …` for nodes, `require not …` for the pod"
STATEMENTS = {
    **{word: statement.advice for statement in statements.STATEMENTS for word in statement.foreign},
    **dict.fromkeys(("apiversion", "kind", "metadata", "spec", "data", "rules", "match", "validate", "---"), _YAML),
    **dict.fromkeys(("deny", "reject", "forbid", "exclude", "refuse", "violation", "drop"), _REFUSE),
    **dict.fromkeys(("avoid", "penalize", "minimize"), "write `score -10 if …`, or `score -(…)`: more is better"),
    **dict.fromkeys(("if", "when", "unless"), "write the condition last: `score 10 if …`, `filter … if …`"),
    **dict.fromkeys(
        ("else", "elif", "otherwise", "then"), "there are no blocks: `let x = if … then … else …`, in one statement"
    ),
    **dict.fromkeys(("weight",), "write `weight` after the score: `score … weight 2`"),
    **dict.fromkeys(("return", "end", "begin", "pass", "continue", "break"), "there are no blocks: remove the line"),
    **dict.fromkeys(("default",), "a node passes if every filter is true, so you need no default: remove the line"),
    **dict.fromkeys(("-", "*", "•"), "statements are not a list: remove the list mark"),
}  # fmt: skip
"""By the first word of a line in lower case."""

_SUFFIX_IF = "write conditions last, after `if`: `… if pod.priority > 10`"
WORDS = {
    "unless": "write `if not …`",
    "when": "write `if …`",
    "where": _SUFFIX_IF,
    "for": "to select pods, add a line `for pods where …`",
    "xor": "write `a != b`",
    "mod": "write `%`",
    "div": "write `/`",
    **dict.fromkeys(("starts", "begins"), 'write `startswith(text, "beginning")`'),
    **dict.fromkeys(("ends",), 'write `endswith(text, "end")`'),
    **dict.fromkeys(("ilike", "regex", "regexp", "rlike"), 'write `matches "…"` with a regular expression'),
    "like": 'write `matches "…"` with a regular expression, or `startswith(…)`, `contains(…)`',
    "contains": 'for texts write `contains(text, "part")`, for lists `"item" in list`',
    "has": 'write `label KEY`, or `"item" in list`',
    "startswith": 'write `startswith(text, "beginning")`',
    "endswith": 'write `endswith(text, "end")`',
    "exists": "write `label KEY`, or `… is not missing`",
    **dict.fromkeys(("maxskew", "max_skew", "skew"), "write `max skew 1`"),
    **dict.fromkeys(("mindomains", "min_domains", "domains"), "write `max skew 1 min domains 3`"),
    **dict.fromkeys(("except", "excluding", "minus", "but"), "what is left out is said with `without NAME`"),
    "between": "write `low <= x and x <= high`; for times of day `between(\"22:00\", \"06:00\")`",
    "equals": "write `==`",
    "eq": "write `==`",
    "ne": "write `!=`",
    "gt": "write `>`",
    "ge": "write `>=`",
    "lt": "write `<`",
    "le": "write `<=`",
    "is": "write `==`; `is` is only for `is missing` and `is not missing`",
    **dict.fromkeys(("null", "none", "nil", "undefined"), "write `is missing` or `is not missing`"),
    **dict.fromkeys(("set", "defined", "present"), "write `is not missing`"),
    **dict.fromkeys(("unset", "absent"), "write `is missing`"),
    **dict.fromkeys(("empty", "blank"), 'write `is missing`, or `== ""` for an empty text'),
    **dict.fromkeys(("message", "msg", "because", "reason", "error"), 'write a reason with `else "…"`'),
    **dict.fromkeys(("named", "called", "name"), "write a name with `as NAME`"),
    **dict.fromkeys(("on", "across", "per", "within", "topology"), "write the domains with `over zone`"),
    **dict.fromkeys(("priority", "times"), "write a weight with `weight 2`"),
    **dict.fromkeys(("of", "min", "minmember", "count"), "write the size of a gang with `size 4`"),
    **dict.fromkeys(("timeout",), "write the timeout of a gang with `within 5min`"),
    **dict.fromkeys(("max_age", "maxage", "ttl", "stale_after"), "write the maximum age of a value with `stale after 2min`"),
    **dict.fromkeys(("interval", "refresh"), "write the query interval with `every 30s`"),
}  # fmt: skip
"""By a word where an operator or a part is possible, in lower case."""

_OF_PODS = "which pods count is said at the end with `of pods where …`"
_FOR_CLUSTER = "for one value of the cluster, write `for cluster` behind the query"
_BY_TEXT = "write the label first, then the text: `by tenant as pod.label.tenant`"
_NO_RACK = "a gang has no domains: add `pack by pod.label.job over rack`"
IN_STATEMENTS = {
    ("limit", "where"): f"{_OF_PODS}, to which pods it applies with `if …`",
    **dict.fromkeys((("limit", word) for word in ("of", "for", "among")), _OF_PODS),
    **dict.fromkeys(
        (("limit", word) for word in ("over", "on", "per", "across", "each", "in")), "write the domains at the end: `limit count() to 4 over node`"
    ),
    **dict.fromkeys(
        (("limit", word) for word in ("=", "==", "at", "max", "min", "most", "under", "below", "size")),
        "write the limit with `to`: `limit count() by pod.label.app to 4`",
    ),
    **dict.fromkeys((("limit", word) for word in ("group", "grouped")), "write `by` alone: `limit count() by pod.label.app to 4`"),
    ("limit", "by"): "`by` stands before `to`: `limit count() by pod.namespace to 4`",
    **dict.fromkeys(
        ((each, ",") for each in ("spread", "pack", "gang")), "there is one key: for two keys write two statements"
    ),
    **dict.fromkeys((("preempt", word) for word in ("where", "when", "pod", "for")), "write `preempt if …`"),
    ("preempt", "always"): "write `preempt if true`",
    ("queue", "namespace"): 'write `for pods where pod.namespace == "…"`',
    ("queue", "namespaces"): 'write `for pods where pod.namespace in ["…"]`',
    ("limit", ","): "a limit has one key: for two keys write two statements",
    **dict.fromkeys((("order", word) for word in ("descending", "decreasing", "reverse", "highest")), "write `desc`"),
    **dict.fromkeys((("order", word) for word in ("ascending", "increasing", "lowest")), "write `asc`"),
    **dict.fromkeys((("order", word) for word in ("asc", "desc")), "`strict` stands at the end, behind `desc`"),
    ("hold", "for"): "write the time as a condition: `hold if … and pod.waiting < 5min`",
    ("hold", "until"): "write the time as a condition: `hold if … and pod.waiting < 5min`",
    ("gang", "timeout"): "write the timeout with `within 5min`",
    ("gang", "roles"): "write roles with `with 1 of role=driver, 2 of role=worker`",
    ("gang", "and"): "separate roles with a comma: `with 1 of role=driver, 2 of role=worker`",
    ("gang", "with"): "write the size before the roles: `size 3 with 1 of role=driver`",
    **dict.fromkeys((("gang", word) for word in ("of", "min", "minmember", "count", "minimum")), "write the size of a gang with `size 4`"),
    **dict.fromkeys((("gang", word) for word in ("on", "over", "across", "in")), _NO_RACK),
    ("rebalance", "every"): "how often is a setting of the scheduler: `rebalancing: {every: 5min}`",
    ("preempt", "evict"): "write who may preempt, too: `preempt if pod.priority > 0 evict where …`",
    ("spread", "and"): "separate with a comma: `target spot 70%, od 30%`, `counting tainted, filtered nodes`",
    **dict.fromkeys((("spread", word) for word in ("ratio", "targets", "share", "to")), "write the shares with `target spot 70%`, after `over`"),
    **dict.fromkeys((("metric", word) for word in ("cluster", "global")), _FOR_CLUSTER),
    **dict.fromkeys((("metric", word) for word in ("as", "=", "on", "per", "join")), _BY_TEXT),
    ("metric", ","): "a metric is joined by one label: `by tenant as pod.label.tenant`",
}  # fmt: skip
"""By the keyword of a statement and a word in it, in lower case, where `WORDS` has another meaning or none."""

AGGREGATES = {
    **dict.fromkeys(("distinct", "unique", "uniq", "nunique", "set", "count_distinct", "countdistinct"), "count(distinct"),
    **dict.fromkeys(("mean", "average"), "avg("),
    **dict.fromkeys(("total", "add"), "sum("),
    **dict.fromkeys(("exists", "some", "contains"), "any("),
    **dict.fromkeys(("every", "forall", "each"), "all("),
    **dict.fromkeys(("none", "nothing"), "not any("),
    **dict.fromkeys(("highest", "maximum"), "max("),
    **dict.fromkeys(("lowest", "minimum"), "min("),
}  # fmt: skip
"""Names of aggregates in other languages, and how ours begin."""

UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("w", "week", "weeks"), "w"),
    **dict.fromkeys(("ms", "millis", "milliseconds"), "ms"),
    **dict.fromkeys(("percent", "pct", "prozent"), "%"),
    **dict.fromkeys(("m", "millicores", "millicpu"), "m"),
    **dict.fromkeys(("core", "cores", "cpu", "cpus", "vcpu", "vcpus", "bytes", "points", "pods", "nodes"), ""),
    **{unit.lower(): unit for unit in ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")},
    **{f"{unit.lower()}b": unit for unit in ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")},
    "kb": "k", "mb": "M", "gb": "G", "tb": "T", "pb": "P",
}  # fmt: skip
"""Units written as a word of their own, and how they are written behind the number."""

NAMES = {
    "victim": "only behind `evict where` there is a victim; for the pod that is placed write `pod.…`",
    **dict.fromkeys(
        ("null", "none", "nil", "undefined", "missing"), "you cannot compare with it: write `… is missing` or `… is not missing`"
    ),
    **dict.fromkeys(("true", "false"), "write it in lower case"),
    **dict.fromkeys(("self", "this", "it"), "write `node` or `pod`"),
    **dict.fromkeys(("nodes",), "a statement is evaluated for each node: write `node.…`"),
    **dict.fromkeys(("pods",), "for pods, use `count(p in node.pods where …)`, or write `pod.…`"),
    **dict.fromkeys(("time", "now", "date", "clock"), "write `hour()`, `weekday()`, `now()`, `between(…)`"),
    **dict.fromkeys(("labels", "label"), 'write `label KEY=VALUE`, `node.label["KEY"]` or `pod.label.KEY`'),
    **dict.fromkeys(("input", "object", "request", "review", "container", "containers"), "write `pod.…` or `node.…`"),
    **dict.fromkeys(("data", "state", "env", "config"), "a policy can read only `node.…`, `pod.…` and metrics"),
}  # fmt: skip
"""By a name that nothing has, in lower case."""

_QUERY = 'write this inside the query, in quotes: `promql("{name}(…)")`'
_DECIDED = "there is no random function, because decisions must be repeatable; ties are broken automatically"
FUNCTIONS = {
    **{
        name: _QUERY.replace("{name}", name)
        for name in (
            "rate", "irate", "increase", "delta", "deriv", "quantile", "histogram_quantile", "topk", "bottomk",
            "sum_over_time", "avg_over_time", "max_over_time", "min_over_time", "predict_linear", "label_replace", "scalar",
        )
    },
    **dict.fromkeys(("str", "string", "tostring", "format", "sprintf", "concat"), "texts can only be compared"),
    **dict.fromkeys(("exists", "has", "defined", "haslabel", "has_label"), "write `label KEY`, or `… is not missing`"),
    **dict.fromkeys(("isnull", "ismissing", "is_missing", "is_null"), "write `… is missing`"),
    **dict.fromkeys(("coalesce", "default", "ifnull", "nvl", "getordefault", "get"), "write `VALUE ?? DEFAULT`"),
    **dict.fromkeys(("if", "iif", "ifelse", "cond", "ternary", "case"), "write `if COND then A else B`"),
    **dict.fromkeys(("random", "rand", "hash", "shuffle", "choose", "choice"), _DECIDED),
    **dict.fromkeys(("label", "labels", "nodelabel", "getlabel"), "write `label KEY=VALUE`, or `node.label[\"KEY\"]`"),
    **dict.fromkeys(("power", "pow"), "write `x * x`"),
    **dict.fromkeys(("mean", "average"), "write `avg(p.request.cpu for p in node.pods)`"),
    "model": "this is an extension: write `policies: {extensions: [onnx]}` in the configuration, and use `--config`",
}  # fmt: skip
"""By the name of a function that no builtin is either (`Words.foreign`), in lower case."""

FIELDS = {
    "node": {
        **{
            word: f"write `node.free.{name}` for the free amount, `node.allocatable.{name}` for the total, `node.used_fraction.{name}` for the requested share"
            for word, name in (
                ("cpu", "cpu"), ("cpus", "cpu"), ("mem", "mem"), ("memory", "mem"), ("ram", "mem"), ("storage",
                "ephemeral_storage"), ("disk", "ephemeral_storage"),
            )
        },
        **dict.fromkeys(("metadata", "status", "spec"), "fields come directly after `node.`: `node.ready`, `node.name`"),
        **dict.fromkeys(("gpu", "gpus", "accelerator"), 'write `node.free["nvidia.com/gpu"] ?? 0`, or `label gpu`'),
        **dict.fromkeys(("tenant", "team", "type", "pool", "rack", "role", "disk_type"), "for a label write `node.label.{name}`"),
        **dict.fromkeys(("instance_type", "instancetype"), 'write `node.label["node.kubernetes.io/instance-type"]`'),
        **dict.fromkeys(("numa", "numa_nodes"), "write `fits_numa(cpu, mem)`"),
        **dict.fromkeys(("ip", "address", "addresses"), "addresses are not available: write `node.name` or a label"),
    },
    "pod": {
        **{
            word: f"write `pod.request.{name}` or `pod.limit.{name}`"
            for word, name in (("cpu", "cpu"), ("mem", "mem"), ("memory", "mem"), ("ram", "mem"))
        },
        **dict.fromkeys(("metadata", "status", "spec"), "fields come directly after `pod.`: `pod.namespace`, `pod.priority`"),
        **dict.fromkeys(
            ("node", "node_name", "nodename", "host", "zone", "region"),
            "the node of the pod is not decided yet: write `node.name`, `node.zone`, or a label of the pod",
        ),
        **dict.fromkeys(("tenant", "team", "app", "tier", "user", "job", "type"), "for a label write `pod.label.{name}`"),
        **dict.fromkeys(("gpu", "gpus"), 'write `pod.request["nvidia.com/gpu"] ?? 0`'),
    },
    "running pod": {
        **dict.fromkeys(("age", "uptime", "created", "start_time", "starttime"), "write `p.running`, which is for how long the pod has run"),
        **dict.fromkeys(
            ("phase", "state", "alive", "healthy"), "pods that have ended are not counted; write `p.ready` or `p.started`"
        ),
        **dict.fromkeys(("pending", "starting", "creating"), "write `not p.started`"),
        **dict.fromkeys(
            ("terminating", "deleting", "deleted", "deletion_timestamp", "finished", "completed", "succeeded", "failed"),
            "pods that are deleted or have ended are not counted",
        ),
        **dict.fromkeys(
            ("usage", "used", "cpu_usage", "memory_usage"),
            "requests are `p.request.cpu`; for what pods use write a metric of the node: `promql(\"…\")`",
        ),
        **dict.fromkeys(("status", "spec", "metadata"), "fields come directly after `p.`: `p.ready`, `p.restarts`"),
        **dict.fromkeys(("host", "nodename", "node_name"), "write `p.node.name`"),
        **dict.fromkeys(("zone", "region"), "write `p.node.{name}`"),
    },
}  # fmt: skip
"""By subject and the word behind the dot, in lower case, where it means no field (`Field.foreign`) or several; `{name}`
stands for that word."""


def field_advice(subject: str, word: str, fields: Iterable[Field]) -> str:
    """Return what to write for an unknown field; "" if nothing is known."""
    lower = word.lower()
    meant = (each.advice for each in fields if each.path.startswith(f"{subject}.") and lower in each.foreign)
    return next(meant, "") or FIELDS.get(subject, {}).get(lower, "").replace("{name}", word)


_ITS_NAME = r"\bp(?=\.)"


def running_pod_advice(name: str, word: str) -> str:
    """Return what to write for a field that no running pod has; "" if nothing is known.

    name: what the policy calls the pod.
    """
    return re.sub(_ITS_NAME, name, field_advice("running pod", word, ()))


def function_advice(name: str, builtins: Iterable[Builtin]) -> str:
    """Return what to write for an unknown function; "" if nothing is known."""
    lower = name.lower()
    bare = lower.replace("_", "")
    meant = (each.advice for each in builtins if bare in each.words.foreign)
    return next(meant, "") or FUNCTIONS.get(lower) or FUNCTIONS.get(bare, "")
