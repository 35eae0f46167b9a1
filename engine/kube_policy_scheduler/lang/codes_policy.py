"""P02xx: what is wrong with a policy as a whole, or with policies together."""

from kube_policy_scheduler.lang.codes import Code

REPEATED = Code(
    "P0201",
    "repeated-statement",
    "A policy can contain this statement only once. This applies to `policy`, `scheduler`, `for pods where`,"
    " `priority`, `order`, `preempt`, `ties` and `devices`.",
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
    "`use kubernetes without` names kube-scheduler's default filters, `use kubernetes scores without` (or `with`) its"
    " default scores, under the names that they have there.",
    bad="use kubernetes without NodePort",
    good="use kubernetes without NodePorts",
)
NUMBER = Code(
    "P0207",
    "number-out-of-range",
    "A weight or the bound of a limit must be 0 or more, a priority must be a whole number, and a skew or size must be"
    " a whole number of at least 1.",
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
    "The governing policy of a pod and its position in the queue are determined when the pod arrives. They cannot"
    " depend on the clock, a metric, or the state of the cluster.",
    bad="order by pod.waiting desc",
    good="order by pod.queued",
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
    "Ties are broken `by hash` (seeded, the default) or `by name` (the smallest). The device for a share is"
    " selected `by fullest` (the default), `emptiest`, `fragmentation` or `random`. A spread counts `all`,"
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
BUILTIN_NAME = Code(
    "P0211",
    "builtin-name",
    "The name is built in. You cannot redefine it, because that would change the meaning of other lines.",
    bad="def clamp(x) = x\nscore clamp(node.free.cpu)",
    good="def limited(x) = clamp(x, 0, 10)\nscore limited(node.free.cpu)",
)
