"""The statements of the language: how each is written, which extension point it is, what it means.

The one table that cutting a file into statements, lowering, formatting, suggestions, error messages and the reference
read. The grammar says the same once more, for the parser; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

PODS, WORKLOADS = "pods", "workloads"
"""The subjects of policies: pods, which go to nodes, and workloads, which go to the clusters of a fleet."""
EVERY = (PODS, WORKLOADS)


class StatementForm(msgspec.Struct, frozen=True):
    """One form of a statement, as the reference shows it."""

    written: str
    extension_point: str
    """Of the scheduling framework; "" for those that decide nothing."""
    meaning: str
    example: str
    subject: str = ""
    """The only subject of policies in which it may stand; "" where its statement may."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One statement: everything that is said with one keyword."""

    keyword: str
    """Its first word."""
    forms: tuple[StatementForm, ...]
    rules: tuple[str, ...]
    """Of the grammar."""
    clauses: tuple[str, ...] = ()
    """The clauses that it takes at its end, in the order in which they are formatted: words of `CLAUSES`."""
    joins: tuple[str, ...] = ()
    """Its other words that something stands before and behind: at them it goes on over the end of a line."""
    words: tuple[str, ...] = ()
    """Its further words."""
    opening: str = ""
    """The pattern that begins it, where the keyword alone could also begin a line inside another statement."""
    as_function: bool = False
    """Whether people write the keyword with a bracket behind it, as if it were a function."""
    condition: bool = False
    """Whether it is a condition: several can be joined with `and`."""
    groups: bool = False
    """Whether it groups pods by a key."""
    subjects: tuple[str, ...] = (PODS,)
    """In policies of which subject it may stand; of its parts, the checker knows."""
    behind: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """Of its clauses that end with a further word: which word."""
    apart: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """Of its clauses those that exclude others, and which."""
    foreign: tuple[str, ...] = ()
    """Words of other languages that begin such a line, in lower case."""
    advice: str = ""
    """What to write for those."""


CLAUSES: Mapping[str, str] = {
    "as": "name",
    "if": "condition",
    "else": "reason",
    "weight": "weight",
    "over": "topology",
    "max skew": "max_skew",
    "min domains": "min_domains",
    "counting": "counting",
    "target": "targets",
    "target by": "share",
    "with": "roles",
    "within": "within",
    "within one": "levels",
    "evict whole": "evict_whole",
    "every": "every",
    "stale after": "stale_after",
    "default": "default",
    "by": "by",
    "for cluster": "for_cluster",
    "for fleet": "for_fleet",
    "strict": "strict",
    "of pods where": "of_pods",
    "of workloads where": "of_workloads",
    "min": "minimum",
    "max": "maximum",
    "lend": "lend",
    "remember": "remember",
    "fair": "fair",
    "above max": "above_max",
    "after": "after",
    "evict where": "evict",
    "new nodes": "new_nodes",
    "margin": "margin",
    "at most": "most",
    "rest": "rest",
    "lasts": "lasts",
    "at least": "least",
    "each at most": "most_each",
    "partly": "partly",
    "also running": "also_running",
}
"""The clauses of statements, each with the attribute of the syntax tree that holds what stands behind it."""

ALONE = ("for cluster", "for fleet", "strict", "fair", "above max", "evict whole", "partly", "also running")
"""Clauses that nothing stands behind."""

CLAUSE_SUBJECTS: Mapping[str, str] = {
    "also running": WORKLOADS,
    "for fleet": WORKLOADS,
    "for cluster": PODS,
    "new nodes": PODS,
    "counting": PODS,
    "of pods where": PODS,
    "of workloads where": WORKLOADS,
}
"""Clauses that only policies of one subject have."""

CLAUSE_WORDS = ("nodes", "of", "help", "never", "each")
"""Further words inside clauses."""

EXPRESSION_JOINS = ("and", "or", "not", "in", "is", "matches", "if", "then", "else", "where")
"""Words of expressions that something stands before or behind: at them a statement goes on over the end of a line."""
BEHIND_A_NAME = ("and", "or", "in", "notin", "is", "matches", "then", "else")
"""Words of expressions that a value stands before."""
EXPRESSION_WORDS = (*EXPRESSION_JOINS, "notin", "missing", "true", "false", "label", "pod", "for", "distinct")
"""Words of expressions."""

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        keyword="language",
        forms=(
            StatementForm(
                "language N",
                "",
                "The version of the language that the file is written in, as its first statement. The default is the"
                " newest version.",
                "language 2",
            ),
        ),
        rules=("language",),
        opening=r"language(?=[^\S\n]+\d)",
        foreign=("version", "syntax", "edition"),
        advice="write `language 2` for the version of the language",
        subjects=EVERY,
    ),
    Statement(
        keyword="policy",
        forms=(
            StatementForm(
                "policy NAME", "", "The name of the policy. The default is the name of the file.", "policy batch"
            ),
        ),
        rules=("policy",),
        foreign=("package", "name", "module"),
        advice="write `policy NAME`, or leave it out: the file's name is used",
        subjects=EVERY,
    ),
    Statement(
        keyword="scheduler",
        forms=(
            StatementForm(
                "scheduler NAME",
                "",
                "The `spec.schedulerName` of the pods that the policy governs. The default is the name that the"
                " scheduler serves.",
                "scheduler batch-scheduler",
            ),
        ),
        rules=("scheduler",),
        subjects=EVERY,
    ),
    Statement(
        keyword="for",
        forms=(
            StatementForm(
                "for pods where CONDITION",
                "",
                "The pods that the policy governs. The default is all pods of its scheduler.",
                'for pods where pod.namespace == "batch"',
            ),
            StatementForm(
                "for workloads where CONDITION",
                "",
                "Makes it a policy of a fleet: it chooses clusters for workloads, instead of nodes for pods. The"
                " condition selects the workloads that it governs.",
                'for workloads where workload.kind == "Deployment"',
                subject=WORKLOADS,
            ),
        ),
        rules=("for_pods", "for_workloads"),
        joins=("where",),
        words=("pods", "workloads"),
        opening="for (?:pods|workloads)",
        condition=True,
        subjects=EVERY,
    ),
    Statement(
        keyword="priority",
        forms=(
            StatementForm(
                "priority N",
                "",
                "If several policies match a pod, the one with the highest priority governs it.",
                "priority 10",
            ),
        ),
        rules=("priority",),
        as_function=True,
        subjects=EVERY,
    ),
    Statement(
        keyword="canary",
        forms=(
            StatementForm(
                "canary of NAME for SHARE [of pods where CONDITION]",
                "",
                "Applies this policy to a share of the workloads of the policy NAME; the others stay with NAME."
                " Uses the scheduler, pods and priority of NAME.",
                "canary of batch for 10%",
            ),
            StatementForm(
                "canary of NAME for pods where CONDITION",
                "",
                "Applies this policy to some pods of the policy NAME, such as those of one namespace.",
                'canary of batch for pods where pod.namespace == "team-a"',
            ),
        ),
        rules=("canary",),
        joins=("where",),
        words=("of", "for", "pods"),
    ),
    Statement(
        keyword="ties",
        forms=(
            StatementForm(
                "ties by hash|name",
                "",
                "Selects one of several best nodes: by a seeded hash of pod and node (the default), or by the"
                " smallest name.",
                "ties by name",
            ),
        ),
        rules=("ties",),
        joins=("by",),
    ),
    Statement(
        keyword="devices",
        forms=(
            StatementForm(
                "devices by fullest|emptiest|fragmentation|random",
                "",
                "Selects which of several devices of the node the pod gets, for claims and for shares. The default for"
                " a share is the device with the least free capacity that is enough, and for claims the device that"
                " kube-scheduler selects.",
                "devices by fragmentation",
            ),
            StatementForm(
                "devices by EXPR [asc|desc], …",
                "",
                "The same, by values of the devices: the smallest first, or with `desc` the largest. A missing value"
                " comes last.",
                'devices by device_value("memory"), device_group_free("numa")',
            ),
        ),
        rules=("devices",),
        joins=("by",),
        words=("asc", "desc"),
        opening="devices by",
    ),
    Statement(
        keyword="queue",
        forms=(
            StatementForm(
                "queue NAME [of PARENT] for pods where CONDITION [min RESOURCE AMOUNT, …] [max RESOURCE AMOUNT, …]"
                " [lend RESOURCE AMOUNT, …] [weight N] [remember DURATION]",
                "PreFilter",
                "A quota with borrowing. The pods of the queue are guaranteed `min`. They may borrow what other queues"
                " do not use, up to `max`. `lend` limits how much of its own unused guarantee others may borrow."
                " Without a condition, the queue takes all pods of its parent; a queue without a parent takes all"
                " pods. With `remember`, the fair order also counts past usage, with this half-life.",
                'queue research for pods where pod.namespace == "research" min nvidia.com/gpu 40, cpu 400',
            ),
            StatementForm(
                "queue NAME [of PARENT] by KEY [min RESOURCE AMOUNT, …] [max RESOURCE AMOUNT, …]"
                " [lend RESOURCE AMOUNT, …] [weight N]",
                "PreFilter",
                "The same, with one queue for each value of the key, such as each namespace.",
                "queue team by pod.label.team min nvidia.com/gpu 8 weight 2",
            ),
        ),
        rules=("queue",),
        clauses=("min", "max", "lend", "weight", "remember"),
        joins=("where", "by"),
        words=("of", "for", "pods"),
        opening=r"queue(?=[^\S\n]+[A-Za-z0-9])",
        foreign=("cohort", "clusterqueue", "elasticquota"),
        advice="write `queue NAME of PARENT for pods where … min cpu 100`",
    ),
    Statement(
        keyword="domains",
        forms=(
            StatementForm(
                "domains by fullest|emptiest|tightest|roomiest",
                "",
                "Selects one of several domains that have room for a gang (`within one`, or the topology of a"
                " PodGroup): the one that is fullest with the gang (the default) or emptiest, measured by the share in"
                " use of what the members request; or the one with the fewest or the most places for members.",
                "domains by tightest",
            ),
            StatementForm(
                "domains by EXPR [asc|desc], …",
                "",
                "The same, by the mean of a value over the nodes of each domain: the smallest first, or with `desc` the"
                " largest. A missing value does not count; a domain without a value comes last.",
                "domains by node.used_fraction.cpu desc, node.age",
            ),
        ),
        rules=("domains",),
        joins=("by",),
        words=("asc", "desc"),
        opening="domains by",
    ),
    Statement(
        keyword="use",
        forms=(
            StatementForm(
                "use kubernetes [without NAME, …]",
                "",
                "Applies Kubernetes' default filters in addition to those of the policy. This is the default;"
                " `without` disables some of them.",
                "use kubernetes without NodePorts",
            ),
            StatementForm(
                "use kubernetes scores [weight N] [without NAME, …] [with NAME weight N, …]",
                "Score",
                "Adds Kubernetes' default scores. This is the default if the policy has no `score`, `spread` or"
                " `pack`. `without` disables some of them, `with` sets the weight of some, and a `weight` without a"
                " name multiplies all weights.",
                "use kubernetes scores without ImageLocality with NodeAffinity weight 5",
            ),
            StatementForm(
                "use karmada [without NAME, …]",
                "",
                "Applies Karmada's filters in addition to those of the policy. This is the"
                " default; `without` disables some of them.",
                "use karmada without TaintToleration",
                subject=WORKLOADS,
            ),
            StatementForm('use "FILE"', "", "Includes the statements of another file.", 'use "common.policy"'),
        ),
        rules=("use_kubernetes", "use_scores", "use_karmada", "use_file"),
        joins=("without", "with"),
        words=("kubernetes", "scores", "weight", "karmada"),
        as_function=True,
        foreign=("import", "include", "from", "load", "source"),
        advice='write `use "common.policy"`',
        subjects=EVERY,
    ),
    Statement(
        keyword="let",
        forms=(
            StatementForm("let NAME = EXPR", "", "Names a value.", "let busy = node.used_fraction.cpu > 80%"),
            StatementForm(
                "let NAME = NUMBER from NUMBER to NUMBER",
                "",
                "Names a number, and tells `policyctl tune` the range in which to look for a better one. The scheduler"
                " uses the number and ignores the range.",
                "let spare = 20% from 5% to 50%",
            ),
        ),
        rules=("let",),
        joins=("from", "to"),
        as_function=True,
        foreign=("var", "const", "set", "val", "variable"),
        advice="write `let NAME = …`",
        subjects=EVERY,
    ),
    Statement(
        keyword="def",
        forms=(
            StatementForm(
                "def NAME(a, b) = EXPR",
                "",
                "Names an expression with parameters. Recursion is not allowed.",
                "def share(used, all) = used / all",
            ),
        ),
        rules=("define",),
        foreign=("function", "func", "fn", "macro", "lambda"),
        advice="write `def NAME(a, b) = …`",
        subjects=EVERY,
    ),
    Statement(
        keyword="metric",
        forms=(
            StatementForm(
                'metric NAME = promql("…") [every D] [stale after D] [default EXPR] [by LABEL]',
                "",
                "Names a metric, and sets how often it is queried, when a value is too old, the default value,"
                " and the label that names the node.",
                'metric load = promql("cpu_usage") stale after 2min default 50',
            ),
            StatementForm(
                'metric NAME = promql("…") for cluster [every D] [stale after D] [default EXPR]',
                "",
                "A metric with one value for the cluster, such as a price. It is missing if the query returns no"
                " series, or more than one.",
                'metric price = promql("avg(power_price)") for cluster default 30',
            ),
            StatementForm(
                'metric NAME = promql("…") for fleet [every D] [stale after D] [default EXPR]',
                "",
                "A metric with one value for all clusters together. Write `by cluster` for"
                " one value of each cluster, if the label `cluster` names it.",
                'metric rate = promql("eur_per_usd") for fleet default 1',
                subject=WORKLOADS,
            ),
            StatementForm(
                'metric NAME = promql("…") [every D] [stale after D] [default EXPR] by LABEL as TEXT',
                "",
                "A metric of tenants, racks or anything else that the pod or the node names: the value of the series"
                " whose label equals the text.",
                'metric budget = promql("sum by (tenant) (budget)") default 0 by tenant as pod.label.tenant',
            ),
            StatementForm(
                'metric NAME = promql("…") [every D] [stale after D] [default EXPR] by LABEL, LABEL as TEXT',
                "",
                "A metric of nodes and of what the pod names: for each node the value of the series that names the node"
                " in its first label and the text of the pod in the second, such as the latency to a service.",
                'metric latency = promql("probe_ms") default 100 by node, peer as pod.label.peer',
            ),
        ),
        rules=("metric",),
        clauses=("for cluster", "for fleet", "every", "stale after", "default", "by"),
        words=("as",),
        as_function=True,
        subjects=EVERY,
    ),
    Statement(
        keyword="hold",
        forms=(
            StatementForm(
                'hold if CONDITION [as NAME] [if CONDITION] [else "why"]',
                "PreEnqueue",
                "Holds the pod outside the active queue while the condition is true.",
                'hold if pod.annotation.paused == "true" else "paused"',
            ),
        ),
        rules=("hold",),
        clauses=("as", "if", "else"),
        condition=True,
        foreign=("wait", "pause", "suspend"),
        advice="write `hold if …`",
        subjects=EVERY,
    ),
    Statement(
        keyword="order",
        forms=(
            StatementForm(
                "order by EXPR [asc|desc], … [strict] [as NAME] [if CONDITION]",
                "QueueSort",
                "Orders the scheduling queue, also by what changes while pods wait. The default is `pod.priority desc,"
                " pod.queued`. With `strict`, no pod is tried before the first one has a node; with `if`, it orders"
                " only some pods.",
                "order by pod.priority desc, pod.queued asc",
            ),
            StatementForm(
                "order by queue.share, EXPR [asc|desc], … [as NAME] [if CONDITION]",
                "QueueSort",
                "Orders the pods fairly among queues: first the pods of the queue that borrows least for its weight.",
                "order by queue.share, pod.priority desc, pod.queued",
            ),
            StatementForm(
                "order by EXPR [asc|desc], … [as NAME] [if CONDITION]",
                "",
                "Orders the workloads that can be decided now, also by what changes while they wait. The default is"
                " `workload.priority desc, workload.waiting desc`. Of the first workloads of several orders, the one"
                " with the highest priority is next.",
                "order by workload.label.tier, workload.waiting desc",
                subject=WORKLOADS,
            ),
        ),
        rules=("order",),
        clauses=("strict", "as", "if"),
        joins=("by",),
        words=("asc", "desc"),
        as_function=True,
        foreign=("sort",),
        advice="write `order by pod.priority desc`",
        subjects=EVERY,
    ),
    Statement(
        keyword="backfill",
        forms=(
            StatementForm(
                "backfill [if CONDITION] lasts EXPR [at most DURATION]",
                "Filter",
                "In a strict order, lets pods start before the first pod or gang that waits, if they do not delay it."
                " `lasts` is how long a pod runs. `if` selects the pods that room is reserved for. Nothing is reserved"
                " if the wait is longer than `at most`, by default one day.",
                "backfill lasts duration(pod.annotation.runtime)",
            ),
        ),
        rules=("backfill",),
        clauses=("if", "lasts", "at most"),
    ),
    Statement(
        keyword="require",
        forms=(
            StatementForm(
                'require CONDITION [as NAME] [if CONDITION] [else "why"] [new nodes help|never help]',
                "PreFilter",
                "A condition on the pod only. If it is false, the pod is unschedulable. `new nodes` tells whether an"
                " autoscaler should add nodes for the pod then.",
                'require pod label tenant else "pod missing tenant label"',
            ),
        ),
        rules=("require",),
        clauses=("as", "if", "else", "new nodes"),
        as_function=True,
        condition=True,
        subjects=EVERY,
    ),
    Statement(
        keyword="filter",
        forms=(
            StatementForm(
                'filter CONDITION [as NAME] [if CONDITION] [else "why"] [new nodes help|never help]',
                "Filter",
                "A node passes if the condition is true, or if the condition after `if` is false. `new nodes` tells"
                " whether an autoscaler should add nodes for a pod that the filter rejects.",
                "filter node.ready and fits(cpu, mem)",
            ),
            StatementForm(
                'filter CONDITION [as NAME] [if CONDITION] [else "why"] [also running]',
                "Filter",
                "A cluster passes if the condition is true. Clusters where the workload runs"
                " pass, too, unless you write `also running`: then it leaves those that fail.",
                'filter cluster.label.tier == "gold" also running',
                subject=WORKLOADS,
            ),
        ),
        rules=("filter",),
        clauses=("as", "if", "else", "new nodes", "also running"),
        as_function=True,
        condition=True,
        foreign=("allow", "permit", "accept", "select", "where", "only", "must", "assert", "node"),
        advice="write `filter CONDITION`: a node passes if every filter is true",
        subjects=EVERY,
    ),
    Statement(
        keyword="score",
        forms=(
            StatementForm(
                "score EXPR [as NAME] [if CONDITION] [weight N]",
                "Score",
                "Adds the value to the total score of the node. If the condition is false, it adds 0.",
                "score -1 if label node=hello",
            ),
        ),
        rules=("score",),
        clauses=("as", "if", "weight"),
        as_function=True,
        foreign=("prefer", "favor", "favour", "rank", "prioritize", "maximize"),
        advice="write `score …`: more is better",
        subjects=EVERY,
    ),
    Statement(
        keyword="spread",
        forms=(
            StatementForm(
                "spread by KEY [over TOPOLOGY] [as NAME] [if CONDITION] [weight N]",
                "Score",
                "Prefers the domains with the fewest pods of the same key. The score is 0 to 100. The default"
                " domain is the node.",
                "spread by pod.label.tenant over zone",
            ),
            StatementForm(
                "spread by KEY over TOPOLOGY target VALUE SHARE, … [as NAME] [if CONDITION] [weight N]",
                "Score",
                "Prefers the domains that have less than their share of the pods of the same key. The other domains"
                " share the rest evenly. The score is 0 to 100.",
                "spread by pod.label.app over lifecycle target spot 70%",
            ),
            StatementForm(
                "spread by KEY [over TOPOLOGY] target by EXPR [as NAME] [if CONDITION] [weight N]",
                "Score",
                "Prefers the domains with the fewest pods of the same key for their size: a node with twice the value"
                " gets twice the pods. The value of a domain is the sum over its nodes. The score is 0 to 100.",
                "spread by pod.label.app over node target by node.allocatable.mem",
            ),
            StatementForm(
                "spread by KEY [over TOPOLOGY] max skew N [min domains N] [counting WHICH nodes]"
                ' [as NAME] [if CONDITION] [else "why"]',
                "Filter",
                "Rejects nodes whose domain would have more than N pods of the key above the domain with the fewest. A"
                " domain counts if it has a node that the pod could use; `counting tainted`, `filtered` or `all nodes`"
                " counts more domains.",
                "spread by pod.label.tenant over zone max skew 1",
            ),
            StatementForm(
                "spread by KEY [over TOPOLOGY] [target VALUE SHARE, … | target by EXPR] [as NAME] [if CONDITION]"
                " [weight N]",
                "",
                "Prefers the clusters, regions, zones, providers, or values of a label, with the fewest replicas of"
                " the same key, or with the fewest for their share or size. The score is 0 to 100.",
                "spread by workload.label.app over region",
                subject=WORKLOADS,
            ),
            StatementForm(
                'spread by KEY [over TOPOLOGY] max skew N [min domains N] [as NAME] [if CONDITION] [else "why"]',
                "",
                "No domain gets more than N replicas of the key above the domain with the fewest. A domain counts if"
                " the workload may use a cluster of it, even if that is full. With fewer than `min domains` of them,"
                " the fewest is 0.",
                "spread by workload.name over region max skew 1",
                subject=WORKLOADS,
            ),
        ),
        rules=("spread",),
        clauses=("over", "target", "target by", "max skew", "min domains", "counting", "as", "if", "else", "weight"),
        joins=("by",),
        groups=True,
        subjects=EVERY,
        foreign=("distribute", "balance"),
        advice="write `spread by pod.label.app over zone`",
    ),
    Statement(
        keyword="pack",
        forms=(
            StatementForm(
                "pack by KEY [over TOPOLOGY] [as NAME] [if CONDITION] [weight N]",
                "Score",
                "Prefers the domains with the most pods of the same key. The score is 0 to 100.",
                "pack by pod.label.job over rack",
            ),
            StatementForm(
                "pack by KEY [over TOPOLOGY] [as NAME] [if CONDITION] [weight N]",
                "",
                "Prefers the clusters or domains with the most replicas of the same key. The score is 0 to 100.",
                "pack by workload.label.app over region",
                subject=WORKLOADS,
            ),
        ),
        rules=("pack",),
        clauses=("over", "as", "if", "weight"),
        joins=("by",),
        groups=True,
        subjects=EVERY,
        foreign=("binpack", "colocate", "affinity"),
        advice="write `pack by pod.label.app over zone`, or a `score`",
    ),
    Statement(
        keyword="limit",
        forms=(
            StatementForm(
                "limit sum(FIELD) | count() [by KEY] to EXPR [of pods where CONDITION] [as NAME] [if CONDITION]"
                ' [else "why"] [new nodes help|never help]',
                "PreFilter",
                "A quota over all pods of one key, including assumed pods. `of pods where` limits and counts only pods"
                " that meet a condition; without `by`, all pods count together.",
                "limit sum(request.cpu) by pod.label.tenant to 100",
            ),
            StatementForm(
                "limit sum(FIELD) | count() [by KEY] to EXPR over TOPOLOGY [of pods where CONDITION] [as NAME]"
                ' [if CONDITION] [else "why"] [new nodes help|never help]',
                "Filter",
                "The same for each domain: rejects nodes whose domain would hold more. Nodes outside every domain have"
                " no limit.",
                'limit count() to 3 over node of pods where pod.label.tier == "batch"',
            ),
            StatementForm(
                "limit count(distinct TOPOLOGY) [by KEY] to EXPR [over TOPOLOGY] [of pods where CONDITION] [as NAME]"
                ' [if CONDITION] [else "why"] [new nodes help|never help]',
                "Filter",
                "A limit of the number of nodes, or of zones or other domains, that pods of one key are on: rejects"
                " further ones.",
                "limit count(distinct node) by pod.label.user to 2",
            ),
            StatementForm(
                "limit sum(replicas) | sum(request.RESOURCE) | count() [by KEY] to EXPR [over TOPOLOGY]"
                ' [of workloads where CONDITION] [as NAME] [if CONDITION] [else "why"]',
                "",
                "How many replicas, how much of a resource, or how many workloads of one key all clusters together"
                " may have, or with `over` each cluster, region, zone, provider, or value of a label. What runs stays;"
                " it gets no more. `of workloads where` limits and counts only workloads that meet a condition.",
                "limit sum(replicas) by workload.namespace to 20 over cluster",
                subject=WORKLOADS,
            ),
        ),
        rules=("limit",),
        clauses=("over", "of pods where", "of workloads where", "as", "if", "else", "new nodes"),
        joins=("by", "to"),
        as_function=True,
        groups=True,
        subjects=EVERY,
        foreign=("quota",),
        advice="write `limit sum(request.cpu) by pod.label.tenant to 100`",
    ),
    Statement(
        keyword="gang",
        forms=(
            StatementForm(
                "gang by KEY size EXPR [with N of LABEL=VALUE, …] [within DURATION] [evict whole] [as NAME]"
                " [if CONDITION]",
                "Permit",
                "All or nothing: no member is bound until `size` members have a node, and N of them for each role after"
                " `with`. If the gang has more members than it needs, those can be evicted one by one; with `evict"
                " whole`, only all members together. If it loses pods and is not complete again after `within`, the"
                " rest is evicted.",
                "gang by pod.label.job size 4 within 5min",
            ),
            StatementForm(
                "gang by KEY size EXPR … within one TOPOLOGY [or TOPOLOGY …] [or any]",
                "Filter",
                "The same, and all members are on nodes of one domain. With several topologies, the gang uses the first"
                " one that has a domain with enough room for it; `any` stands for all nodes. Of several such domains,"
                " the gang gets the one that is fullest then.",
                "gang by pod.label.job size 16 within 10min within one rack or block",
            ),
        ),
        rules=("gang",),
        clauses=("with", "within", "within one", "evict whole", "as", "if"),
        joins=("by", "size"),
        groups=True,
    ),
    Statement(
        keyword="preempt",
        forms=(
            StatementForm(
                "preempt if CONDITION [evict where CONDITION], preempt never",
                "PostFilter",
                "Sets which pods may preempt others, and which pods they may evict (`victim.…`), in addition to"
                " Kubernetes' own rules.",
                'preempt if pod.priority > 1000 evict where victim.label.tier == "batch"',
            ),
        ),
        rules=("preempt",),
        joins=("evict", "where"),
        words=("if", "never"),
        foreign=("evict",),
        advice="write `preempt if … evict where …`",
    ),
    Statement(
        keyword="reclaim",
        forms=(
            StatementForm(
                "reclaim [fair] [after DURATION] [rest DURATION] [if CONDITION] [evict where CONDITION]",
                "PostFilter",
                "Evicts pods of queues that borrow, if a pod needs room that is guaranteed to its own queue. `after`"
                " is how long the pod waits first. With `fair`, a queue that borrows itself may also evict, if its"
                " share is not above that of the other queue afterwards. Pods that started less than `rest` ago are"
                " evicted only for a guarantee.",
                "reclaim after 30s evict where victim.priority < 1000",
            ),
            StatementForm(
                "reclaim above max [evict where CONDITION]",
                "",
                "Evicts pods of a queue that uses more than its `max`, such as after you lowered it: pods that borrow,"
                " one every 30 seconds. Without this statement, such pods run until they end.",
                "reclaim above max",
            ),
        ),
        rules=("reclaim",),
        clauses=("fair", "above max", "after", "rest", "if", "evict where"),
        apart=MappingProxyType({"above max": ("fair", "after", "rest", "if")}),
        joins=("where",),
    ),
    Statement(
        keyword="rebalance",
        forms=(
            StatementForm(
                "rebalance [margin POINTS] [at most N] [rest DURATION] [if CONDITION]",
                "",
                "Lets the scheduler move pods later: pods that their nodes would now reject, and with `margin` also"
                " pods for which another node is better by more than this. `at most` limits the moves of one pass."
                " A workload whose youngest pod is younger than `rest` stays, by default 10 minutes. The first"
                " `rebalance` whose condition is true for a pod applies.",
                'rebalance margin 10 at most 5 rest 30min if pod.label.tier != "db"',
            ),
            StatementForm(
                "rebalance [margin POINTS] [at most N] [rest DURATION] [if CONDITION]",
                "",
                "Moves replicas later to where the policy would place them now. `at most`"
                " limits the replicas that move in one pass, and `rest` is the time between two passes. The condition"
                " selects the clusters that replicas may move to.",
                "rebalance at most 2 rest 10min if cluster.condition_age.Ready ?? 0s > 10min",
                subject=WORKLOADS,
            ),
        ),
        rules=("rebalance",),
        clauses=("margin", "at most", "rest", "if"),
        foreign=("deschedule", "descheduler", "move", "migrate"),
        advice="write `rebalance margin 10`",
        subjects=EVERY,
    ),
    Statement(
        keyword="choose",
        forms=(
            StatementForm(
                "choose N [to M] clusters [over TOPOLOGY] [at least K] [at most L] [each at most P] [if CONDITION]",
                "",
                "How many clusters it may use, N to M, the best by the total score. With"
                " `over`, they are in K to L different regions, zones, providers, or values of a label, and at most P"
                " in each. Without this statement, any number of clusters. What the spread constraints of the"
                " PropagationPolicy say of clusters and regions applies, too. The first whose condition is true for"
                " the workload applies.",
                "choose 2 to 3 clusters over zone at least 2",
                subject=WORKLOADS,
            ),
        ),
        rules=("choose",),
        clauses=("over", "at least", "at most", "each at most", "if"),
        joins=("to",),
        words=("clusters",),
        subjects=(WORKLOADS,),
    ),
    Statement(
        keyword="divide",
        forms=(
            StatementForm(
                "divide evenly|by EXPR [at least N each] [at most N each] [partly] [if CONDITION]",
                "",
                "Divides the replicas among the chosen clusters, evenly or in proportion to a"
                " value of each cluster, as far as there is room. `partly` places what has room, if not all replicas"
                " have. The first whose condition is true for the workload applies.",
                "divide by cluster.room at least 1 each",
                subject=WORKLOADS,
            ),
            StatementForm(
                "divide best first [at most N each] [partly] [if CONDITION]",
                "",
                "Fills the cluster with the highest total score, then the next one. Fewer replicas leave the worst"
                " cluster first.",
                "divide best first",
                subject=WORKLOADS,
            ),
            StatementForm(
                "divide over TOPOLOGY evenly|by EXPR|target VALUE SHARE, … then …",
                "",
                "Divides among regions, zones, providers or values of a label first, and then within each of them. The"
                " domains without a target share the rest evenly.",
                "divide over region target eu 70%, us 30% then evenly",
                subject=WORKLOADS,
            ),
            StatementForm(
                "divide copies|as placement [if CONDITION]",
                "",
                "`copies` gives all replicas to each of the chosen clusters. `as placement` divides as the"
                " PropagationPolicy of the workload says; this is the default.",
                'divide copies if workload.kind == "DaemonSet"',
                subject=WORKLOADS,
            ),
        ),
        rules=("divide",),
        clauses=("at least", "at most", "partly", "if"),
        behind=MappingProxyType({"at least": "each", "at most": "each"}),
        joins=("by", "over", "target", "then"),
        words=("evenly", "best", "first", "as", "placement", "copies"),
        subjects=(WORKLOADS,),
    ),
    Statement(
        keyword="keep",
        forms=(
            StatementForm(
                "keep running|nothing",
                "",
                "Whether replicas stay where they are when only their number changes. With"
                " `running`, the default, only the difference is placed or taken away. With `nothing`, each decision"
                " divides all replicas afresh.",
                "keep nothing",
                subject=WORKLOADS,
            ),
        ),
        rules=("keep",),
        words=("running", "nothing"),
        subjects=(WORKLOADS,),
    ),
)

BY_KEYWORD: Mapping[str, Statement] = {statement.keyword: statement for statement in STATEMENTS}

KEYWORDS: tuple[str, ...] = tuple(BY_KEYWORD)
"""The words that statements begin with."""

FORMS: tuple[StatementForm, ...] = tuple(form for statement in STATEMENTS for form in statement.forms)
"""All forms of all statements."""

EXAMPLES: Mapping[str, str] = {statement.keyword: statement.forms[0].example for statement in STATEMENTS}
"""One correct example of each statement, by its first word."""

_JOINS = frozenset(EXPRESSION_JOINS).union(*(statement.joins for statement in STATEMENTS))

GO_ON_BEFORE: frozenset[str] = _JOINS | {
    clause if clause.split()[0] in BY_KEYWORD else clause.split()[0] for clause in CLAUSES
}
"""Words that begin no line: a line that begins with one goes on with the statement above."""

GO_ON_BEHIND: frozenset[str] = _JOINS | {clause.split()[-1] for clause in CLAUSES if clause not in ALONE}
"""Words that end no statement: where a line ends with one, the statement goes on in the next."""

WORDS: frozenset[str] = frozenset((*EXPRESSION_WORDS, *CLAUSE_WORDS)).union(
    (word for clause in CLAUSES for word in clause.split()),
    *((statement.keyword, *statement.joins, *statement.words) for statement in STATEMENTS),
)
"""All words of the language."""
