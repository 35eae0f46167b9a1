"""P02xx: what is wrong with a policy as a whole, or with policies together."""

from kube_policy_scheduler.lang.codes import Code

REPEATED = Code(
    "P0201",
    "repeated-statement",
    "This can be said only once in a policy: its name, its scheduler, which pods it is for, its priority, the order of"
    " the queue, who may preempt, how ties are broken, which device a share is taken of.",
    bad="priority 1\npriority 2\nfilter node.ready",
    good="priority 2\nfilter node.ready",
)
HEADER_IN_USED = Code(
    "P0202",
    "header-in-used-file",
    "A file that others take in with `use` is a part of their policies and no policy itself, so it has no name,"
    " scheduler, pods or priority of its own.",
    bad="# in common.policy, which another file uses\npriority 10",
    good="# in common.policy\nfilter node.ready",
)
NO_FILE = Code(
    "P0203",
    "unknown-file",
    'The file in `use "…"` is not there. It is looked for beside the file that uses it.',
    bad='use "comon.policy"',
    good="use kubernetes",
)
CYCLE = Code(
    "P0204",
    "use-cycle",
    "A file takes itself in, directly or through others.",
    bad='# in a.policy\nuse "a.policy"',
    good="use kubernetes",
)
SAME_NAME = Code(
    "P0205",
    "same-policy-name",
    "Two policies have one name; decisions, metrics and tests could not tell them apart. A policy without a `policy`"
    " line has its file's name.",
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
    "Weights and the bounds of limits are 0 or more, priorities whole numbers, skews and sizes whole numbers from 1.",
    bad="score node.free.cpu weight -1",
    good="score -node.free.cpu weight 1",
)
SAME_CLAUSE = Code(
    "P0208",
    "same-clause-name",
    "Two clauses of a policy have one name; tests and metrics could not tell them apart.",
    bad="filter node.ready as ok\nfilter fits(cpu) as ok",
    good="filter node.ready as ready\nfilter fits(cpu) as room",
)
UNSTABLE = Code(
    "P0209",
    "unstable-input",
    "Which policy governs a pod, and where the pod stands in the queue, is settled when the pod arrives. It can't"
    " follow the clock, a metric or the state of the cluster.",
    bad="order by pod.waiting desc",
    good="order by pod.queued",
)
MEASURE = Code(
    "P0210",
    "unknown-measure",
    "`limit` adds up something over the pods that have one key: `sum(request.cpu)`, another number of the pod, or"
    " `count()`.",
    bad="limit request.cpu by pod.label.tenant to 100",
    good="limit sum(request.cpu) by pod.label.tenant to 100",
)
NO_CHOICE = Code(
    "P0212",
    "unknown-choice",
    "Ties are broken `by hash` (seeded, the default) or `by name` (the smallest). A share of a device is taken `by"
    " fullest` (the default), `emptiest`, `fragmentation` or `random`. A spread is `counting all`, `tainted` or"
    " `filtered nodes`.",
    bad="ties by age",
    good="ties by name",
)
NO_STABLE = Code(
    "P0213",
    "unknown-stable-policy",
    "A canary takes over some pods of another policy, which must be there, and be no canary itself. Where only one file"
    " is checked, give the stable policy's file too.",
    bad="# in batch.policy\nfilter node.ready\n# in batch-next.policy\ncanary of bach for 10%\nfilter fits(cpu)",
    good="# in batch.policy\nfilter node.ready\n# in batch-next.policy\ncanary of batch for 10%\nfilter fits(cpu)",
)
CANARY_HEADER = Code(
    "P0214",
    "header-in-canary",
    "A canary has the scheduler, the pods and the priority of its stable policy, so it cannot say any of them itself.",
    bad="# in a.policy\nfilter node.ready\n# in b.policy\ncanary of a for 10%\npriority 10\nfilter fits(cpu)",
    good="# in a.policy\npriority 10\nfilter node.ready\n# in b.policy\ncanary of a for 10%\nfilter fits(cpu)",
)
SECOND_CANARY = Code(
    "P0215",
    "second-canary",
    "A policy has one canary at a time: with two, no number would say what the change of either one does.",
    bad="# in a.policy\nfilter node.ready\n# in b.policy\ncanary of a for 10%\nfilter fits(cpu)\n# in c.policy\n"
    "canary of a for 10%\nfilter fits(mem)",
    good="# in a.policy\nfilter node.ready\n# in b.policy\ncanary of a for 10%\nfilter fits(cpu)",
)
BUILTIN_NAME = Code(
    "P0211",
    "builtin-name",
    "The name is built in. Giving it a second meaning would change what other lines say.",
    bad="def clamp(x) = x\nscore clamp(node.free.cpu)",
    good="def limited(x) = clamp(x, 0, 10)\nscore limited(node.free.cpu)",
)
