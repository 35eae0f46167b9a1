"""T0xxx: what is wrong with a test file, for `policyctl explain-code`."""

from kube_policy_scheduler.lang.codes import Code

DUPLICATE_CASE = Code(
    "T0001",
    "duplicate-case",
    "Two cases have the same name. Results are reported by name, so one would hide the other.",
    bad="cases:\n- name: hot node loses\n- name: hot node loses",
    good="cases:\n- name: hot node loses\n- name: hot node loses at night",
)
UNKNOWN_NODE = Code(
    "T0002",
    "unknown-node",
    "An expectation, a metric or a pod names a node that the cluster of the test does not have. The case could pass"
    " without testing anything.",
    bad="nodes: [{name: a1}]\ncases:\n- expect: {not_on: [a11]}",
    good="nodes: [{name: a1}]\ncases:\n- expect: {not_on: [a1]}",
)
UNKNOWN_TEMPLATE = Code(
    "T0003",
    "unknown-template",
    "A pod refers to a template that is not in `templates`, or templates refer to each other in a circle.",
    bad="cases:\n- pod: smal",
    good="templates:\n  small: {cpu: 500m}\ncases:\n- pod: small",
)
UNKNOWN_CLAUSE = Code(
    "T0004",
    "unknown-clause",
    "An expectation names a clause that the pod's policy does not have. Clauses are named by `as NAME`, by their text"
    " as `policyctl fmt` prints it, or by kube-scheduler's plugin name.",
    bad="expect: {unschedulable: {clause: fits(cpu)}}",
    good="expect: {unschedulable: {clause: 'fits(cpu, mem)'}}",
)
UNDEFINED_METRIC = Code(
    "T0005",
    "undefined-metric",
    "The policy reads a metric that the test does not give. It would be missing, and what then holds would be tested"
    " by accident.",
    bad='policy: hot.policy   # score 100 - promql("cpu_usage")',
    good="policy: hot.policy\nmetrics:\n  cpu_usage: {a1: 90}   # or absent: [cpu_usage]",
)
UNKNOWN_METRIC = Code(
    "T0006",
    "unknown-metric",
    "The test gives or expects a metric that no policy reads.",
    bad="metrics:\n  cpu_usge: {a1: 90}",
    good="metrics:\n  cpu_usage: {a1: 90}",
)
BAD_FIXTURE = Code(
    "T0007",
    "bad-fixture",
    "A node, a pod or another object of the test cannot be made, or the API server would reject it.",
    bad="nodes: [{name: a1, taints: [gpu]}]",
    good="nodes: [{name: a1, taints: ['gpu=true:NoSchedule']}]",
)
NOT_GOVERNED = Code(
    "T0008",
    "not-governed",
    "No policy of the test governs the pod of a case: it has a different scheduler name, or no `for pods where`"
    " matches.",
    bad="cases:\n- pod: {scheduler: other}",
    good="cases:\n- pod: {cpu: 1}",
)
UNKNOWN_COLUMN = Code(
    "T0009",
    "unknown-column",
    "A case uses `${name}` where `each` has no such column, or `each` has a column that the case does not use: one of"
    " the two is misspelled.",
    bad="cases:\n- name: ${tenant}\n  each: [{tennant: red}]",
    good="cases:\n- name: ${tenant}\n  each: [{tenant: red}]",
)
DUPLICATE_SERIES = Code(
    "T0010",
    "duplicate-series",
    "Two series have the same metric and labels. Prometheus has no two such series; one would hide the other.",
    bad='series:\n  \'cpu{node="a",job="x"}\': 1\n  \'cpu{job="x",node="a"}\': 2',
    good='series:\n  \'cpu{node="a",job="x"}\': 1',
)
NO_PODS = Code(
    "T0011",
    "no-pods",
    "A file or folder of `forall` contains no pods, so nothing would be tested.",
    bad="forall:\n- pods: fixtures/nodes.yaml",
    good="forall:\n- pods: fixtures/pods.yaml",
)
