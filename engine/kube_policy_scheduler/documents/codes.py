"""D0xxx: what is wrong with a YAML or JSON file, for `policyctl explain-code`."""

from kube_policy_scheduler.lang.codes import Code

SYNTAX = Code(
    "D0001",
    "not-yaml",
    "The file cannot be read as YAML (of which JSON is a part), or uses a feature that is not allowed: tags,"
    " keys that are not texts, or aliases that contain themselves.",
    bad="prometheus:\n\turl: http://prometheus:9090",
    good="prometheus:\n  url: http://prometheus:9090",
)
DUPLICATE_KEY = Code(
    "D0002",
    "duplicate-key",
    "A mapping contains the same key twice. Many programs silently ignore one of them; here it is an error.",
    bad="log:\n  level: info\n  level: debug",
    good="log:\n  level: debug",
)
UNREADABLE = Code(
    "D0003",
    "unreadable-file",
    "The file does not exist, cannot be read, or is not UTF-8 text.",
    bad="policy: rom.policy",
    good="policy: room.policy",
)
UNKNOWN_KEY = Code(
    "D0011",
    "unknown-key",
    "The key is unknown. This is an error, because otherwise a misspelled setting would have no effect and"
    " nobody would notice.",
    bad="log:\n  levle: debug",
    good="log:\n  level: debug",
)
MISSING_KEY = Code(
    "D0012",
    "missing-key",
    "A required key is missing.",
    bad="prometheus:\n  timeout: 5s",
    good="prometheus:\n  url: http://prometheus:9090\n  timeout: 5s",
)
WRONG_VALUE = Code(
    "D0013",
    "wrong-value",
    "A value has the wrong type, is out of range, or is not one of the allowed words.",
    bad="http:\n  port: web",
    good="http:\n  port: 10259",
)
NOT_AN_OBJECT = Code(
    "D0021",
    "not-a-kubernetes-object",
    "A cluster consists of Kubernetes objects, each with `apiVersion`, `kind` and `metadata.name`, or as lists of"
    " them, as `kubectl get nodes,pods -A -o yaml` prints them.",
    bad="nodes:\n- name: a",
    good="apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: a",
)
BAD_TRACE = Code(
    "D0031",
    "not-a-trace",
    "A list of nodes or pods as CSV has a line that names its columns, and in each further line one node or pod:"
    " `name` (nodes: or `sn`), `cpu_milli`, `memory_mib`; GPUs of nodes under `gpu` and `model`, of pods under"
    " `num_gpu`, `gpu_milli` (1 to 1000) and `gpu_spec` (models with `|` between them).",
    bad="name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,4000,8192,1,1.5",
    good="name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,4000,8192,1,500",
)
NOT_METRICS = Code(
    "D0032",
    "not-metrics-over-time",
    "Metrics over time are a CSV table or saved answers of Prometheus' /api/v1/query_range. The first line of a table"
    " names its columns: `time` (RFC 3339 or Unix seconds), labels such as `node`, and a column for each query.",
    bad="node,cpu_usage\na1,90",
    good="time,node,cpu_usage\n0,a1,90\n60,a1,40",
)
