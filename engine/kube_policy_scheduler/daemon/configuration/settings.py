"""What an operator can set, with unit, default and reason. Knows YAML's keys, not what they are used for.

The file is `kind: PolicySchedulerConfiguration`; every key is a field here in camel case, and everything but
`apiVersion` and `kind` may be left out. Relative paths start at the file's own folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, assert_never

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from kube_policy_scheduler.adapters.kube.lease import JITTER
from kube_policy_scheduler.adapters.kube.throttle import RequestRate
from kube_policy_scheduler.diagnostics import Diagnostic, Source
from kube_policy_scheduler.documents.codes import MISSING_KEY, WRONG_VALUE
from kube_policy_scheduler.documents.estimator_settings import EstimatorsSettings, check_estimators
from kube_policy_scheduler.documents.extender_settings import MOST_EXTENDERS, HttpExtenderSettings, check_extenders
from kube_policy_scheduler.documents.http_url import PATTERN
from kube_policy_scheduler.documents.owner_settings import OwnerSettings, check_owners, scope_problems
from kube_policy_scheduler.documents.schema import DocumentSchema, path_text, without
from kube_policy_scheduler.documents.shape import (
    EACH_ONCE,
    Duration,
    Name,
    PositiveDuration,
    Section,
    build,
    expected,
    schema_of,
    seconds,
)
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_document, read_source
from kube_policy_scheduler.documents.yaml_nodes import Step
from kube_policy_scheduler.kubernetes_rules import gate_problem
from kube_policy_scheduler.loopback import is_loopback

API_VERSION = "policy-scheduler/v1alpha1"
KIND = "PolicySchedulerConfiguration"

Port: TypeAlias = Annotated[int, Meta(ge=0, le=65535), expected("a port: 0 to 65535, 0 for a free one")]
Url: TypeAlias = Annotated[str, Meta(pattern=PATTERN), expected("a URL such as http://prometheus.monitoring:9090")]
KubernetesVersionText: TypeAlias = Annotated[
    str,
    Meta(pattern=r"^v?1\.[0-9]{1,4}(\.[0-9]{1,4})?$"),
    expected('a version of Kubernetes in quotes, such as "1.37"'),
]
FeatureGateText: TypeAlias = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z][A-Za-z0-9]*=(true|false)$"),
    expected("a feature gate such as Name=true or Name=false"),
]
UrlPath: TypeAlias = Annotated[str, Meta(pattern=r"^(/[-A-Za-z0-9_.~]+)+$"), expected("a path such as /extender")]


class KubernetesSettings(Section, frozen=True):
    """Connection to the API server."""

    kubeconfig: Path | None = None
    """None: in a pod, the service account; elsewhere $KUBECONFIG, then ~/.kube/config, as in kubectl."""
    context: str | None = None
    """Context of the kubeconfig. None: the current context."""
    node_selector: str = ""
    """Label selector, such as `cell=3` or `cell in (3, 4)`. The scheduler knows only these nodes, and the API server
    sends no others. For cells, see deploy/MILLION-NODES.md. Empty: all nodes."""
    pod_selector: str = ""
    """Label selector, such as `cell=3`. The scheduler knows only these pods, and the API server sends no others. Every
    pod that can run on the nodes above needs the label, also those of DaemonSets and static pods: the scheduler does
    not count others, and overcommits their nodes. Empty: all pods."""
    qps: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    """Maximum number of requests per second to the API server, as in `clientConnection` of kube-scheduler: lists,
    bindings, events and status together. Each pod needs at least one. Open watches and the renewal of the lease do not
    wait. 0: no limit, so that only the API server's own flow control applies."""
    burst: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    """Requests that may be sent at once after a quiet time, if `qps` is set."""
    version: KubernetesVersionText | None = None
    """Version of Kubernetes by whose rules pods are decided, in quotes: `"1.37"`. None: the version that the API server
    has. See deploy/KUBERNETES-VERSIONS.md."""
    feature_gates: tuple[FeatureGateText, ...] = ()
    """Feature gates that your kube-scheduler has on or off otherwise than its version does by default, such as
    `StorageCapacityScoring=false`."""

    @property
    def rate(self) -> RequestRate | None:
        """Return the limit on requests, None for none."""
        return RequestRate(self.qps, self.burst) if self.qps else None

    @property
    def switched_gates(self) -> dict[str, bool]:
        """Return by name whether the feature gates that are not as by default are on."""
        pairs = (text.split("=") for text in self.feature_gates)
        return {name: value == "true" for name, value in pairs}


class PolicySettings(Section, frozen=True):
    """Source of the policies."""

    path: Path = msgspec.field(default_factory=lambda: Path("/etc/policy-scheduler/policies"))
    """A directory of `.policy` files, usually the volume of a ConfigMap, or one file. Mount the whole volume: the
    kubelet never updates a subPath mount."""
    config_map: str | None = None
    """`NAMESPACE/NAME` of the ConfigMap behind the path. The scheduler writes events about reloads on it, stores
    accepted versions, and reports its policies for `policyctl rollout status`. None: nothing of this."""
    checksums: bool = False
    """Accept policies only if a file `SHA256SUMS` beside them, as sha256sum writes it, lists exactly these files."""
    public_key_file: Path | None = None
    """Accept policies only if `SHA256SUMS.sig` beside them is the signature of `SHA256SUMS` by this Ed25519 key, in
    PEM. Implies `checksums`. Store the key where policy authors cannot write."""
    extensions: Annotated[tuple[Name, ...], EACH_ONCE] = ()
    """Installed Python packages whose functions policies may call, by their entry points of the group
    `kube_policy_scheduler.builtins`. They run in the scheduler's process: see policies/EXTENDING.md."""
    owners: Annotated[tuple[OwnerSettings, ...], Meta(max_length=100)] = ()
    """Teams whose policies apply beside these, each within the limits that you set here. An error in the policies of
    one owner affects no others. If policies of one priority match a pod, those of owners come first, in this order."""

    def without_writes(self) -> PolicySettings:
        """Return the settings without the ConfigMaps that are written about."""
        owners = tuple(replace(owner, config_map=None) for owner in self.owners)
        return replace(self, config_map=None, owners=owners)


class PrometheusSettings(Section, frozen=True):
    """Where `promql("…")` is asked. How often, and how fresh answers must be, each policy says itself."""

    url: Url
    """Base URL of the HTTP API of Prometheus, Thanos, Mimir or VictoriaMetrics."""
    bearer_token_file: Path | None = None
    """File with a bearer token. It is read for every request, because projected tokens change about every hour."""
    ca_file: Path | None = None
    """CA certificates to trust instead of those of the system."""
    client_certificate_file: Path | None = None
    """Client certificate for mutual TLS; requires `clientKeyFile`."""
    client_key_file: Path | None = None
    """Client key for mutual TLS; requires `clientCertificateFile`."""
    timeout: PositiveDuration = seconds(5)
    """Timeout of one query. Decisions never wait for it; 5 s is long for an instant query over all nodes."""
    node_label: str | None = None
    """The label that names the node, for queries without `by`. None: the scheduler finds it, from `node`,
    `kubernetes_node`, … to `instance` with an address."""
    prime_timeout: Duration = seconds(3)
    """Time that new policies wait for the first values of new metrics before they are used without them."""


class TlsSettings(Section, frozen=True):
    """The certificate of our own port. `tls: {}` alone: one that is made at the start, as kube-scheduler does; it
    keeps tokens from being read on the way, but clients cannot check it."""

    certificate_file: Path | None = None
    """Certificate in PEM, followed by intermediate CA certificates; read again when it changes. Requires `keyFile`."""
    key_file: Path | None = None
    """Key in PEM, without a password. Requires `certificateFile`."""
    client_ca_file: Path | None = None
    """CA certificates for client certificates, in PEM; read again when it changes. With `mode: extender`, a client of
    the verbs then needs such a certificate (kube-scheduler's `tlsConfig`), or a token if `authentication` is on."""
    client_names: tuple[str, ...] = ()
    """Allowed common names of client certificates, such as `system:kube-scheduler`; empty: all. Set them if you use the
    CA of the cluster, because it also signs for nodes and users."""


class HttpSettings(Section, frozen=True):
    """Address and security of probes, metrics and the status page."""

    host: str = "127.0.0.1"
    """In a pod, use `0.0.0.0`, so that the kubelet and Prometheus can connect. If other machines can connect, the port
    uses HTTPS and requires tokens, unless you set `authentication: none`."""
    port: Port = 10259
    """The port of kube-scheduler."""
    tls: TlsSettings | None = None
    """None: with authentication, a certificate that the scheduler creates when it starts, as for `{}`; without
    authentication, plain HTTP."""
    authentication: Literal["none", "kubernetes"] | None = None
    """`kubernetes`: for everything except probes, a client needs a token that the API server accepts (TokenReview) and
    permission to `get` the path (SubjectAccessReview of nonResourceURLs), as in kube-scheduler. The scheduler needs the
    ClusterRole `system:auth-delegator` for this. `none`: everybody who can connect sees pods, nodes and policies. None:
    `kubernetes` if other machines can connect to `host`, otherwise `none`."""

    def in_force(self) -> HttpSettings:
        """Return what is in force where nothing was said."""
        authentication = self.authentication or ("none" if is_loopback(self.host) else "kubernetes")
        tls = self.tls if authentication == "none" else self.tls or TlsSettings()
        return replace(self, authentication=authentication, tls=tls)


class DecisionLogSettings(Section, frozen=True):
    """The decision log, for `/debug/decisions`, the status page, `policyctl why`, `impact` and `capture`."""

    kept: Annotated[int, Meta(ge=0, le=1_000_000)] = 10_000
    """Number of decisions in memory, about 1 KB each; fewer if they take more than 64 MiB; 0 for none."""
    directory: Path | None = None
    """Also write decisions to `decisions.jsonl` in this folder, which only this process may use. None: memory only."""
    file_mebibytes: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Maximum size of a file, enough for about 100,000 decisions."""
    files: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Number of files, including the current one."""
    repeat_after: Duration = seconds(300)
    """If a pod is rejected again for the same reason within this time, the decision is counted but not logged."""
    detail_share: Annotated[float, Meta(ge=0, le=1)] = 0.01
    """Share of the time for details (scores by clause and node): enough for all decisions of a quiet cluster, up to 15
    per second at 5,000 nodes. They delay the binding by 0.7 ms. 0 for none."""
    best_nodes: Annotated[int, Meta(ge=1, le=100)] = 3
    """Number of nodes whose scores are logged, including the chosen one."""


class LogSettings(Section, frozen=True):
    """Log format and level."""

    format: Literal["text", "json"] = "text"
    """`text` for people; `json` for log collectors: one object per line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug` logs every decision, which is too much for a busy cluster."""


class LeaderElectionSettings(Section, frozen=True):
    """One replica schedules; the others stand by with warm caches."""

    enabled: bool = True
    """Disable this only if there is never a second replica: two active replicas would compete for nodes."""
    lease_name: Name = "policy-scheduler"
    """Name of the lease. Replicas with the same lease elect one leader; different schedulers need different leases."""
    lease_namespace: Name | None = None
    """Namespace of the lease. None: the namespace of the pod; outside a pod, that of `policies.configMap`, else
    kube-system."""
    lease_duration: PositiveDuration = seconds(15)
    """Time until another replica may take over; the default is that of kube-scheduler."""
    renew_deadline: PositiveDuration = seconds(10)
    """Time without a renewal after which the leader stops; less than `leaseDuration`."""
    retry_period: PositiveDuration = seconds(2)
    """Time between two attempts; less than `renewDeadline`."""


class ShardingSettings(Section, frozen=True):
    """Several active replicas, each with its own nodes, for more pods per second than one process can decide."""

    enabled: bool = False
    """Let all replicas schedule, without a leader. The Leases use the names and times of `leaderElection`."""
    unit: Literal["namespace", "pod"] = "namespace"
    """The unit that one replica decides alone. `namespace`: rules between pods of a namespace hold exactly. `pod`:
    replicas also share the pods of a namespace, except pods with affinity, hard spread constraints or a gang. Two pods
    may then be placed at the same moment although the anti-affinity of one excludes the other."""


class SchedulingSettings(Section, frozen=True):
    """Scheduling and binding."""

    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """Breaks ties between equal nodes, together with the names of the pod and the node. The default is the same
    everywhere, so that you can repeat a decision."""
    parallel_binds: Annotated[int, Meta(ge=1, le=1024)] = 128
    """Maximum number of concurrent bindings. At 5 ms each, 128 is more than an API server accepts."""
    device_annotation: Literal["protected", "trusted"] = "protected"
    """When to trust the annotation `policy-scheduler/devices` of a bound pod. `protected`: only while the
    ValidatingAdmissionPolicy `policy-scheduler-devices` (in `deploy/base`) lets nobody but the scheduler write it.
    `trusted`: always."""
    recount_every: Duration = seconds(5)
    """Time between two checks that compare the cache of some nodes with a recount of their pods, and the scheduling
    queue with the pending pods. A check takes 2 ms: 0.04 % of a core. `0s` disables it."""
    cache_mebibytes: Annotated[int, Meta(ge=16, le=65536)] | None = None
    """Maximum memory for results that are kept from one pod to the next: the answers of plugins, the ranked totals and
    the totals by zone of each pod template, rejections, what claims get. With 130,000 nodes, a template takes 2 to
    4 MiB. What does not fit is computed again. The default is 192 MiB for up to 130,000 nodes, and 1.5 MiB more for
    each further 1,000 nodes: about 50 templates."""
    compiled_kernels: bool = True
    """Use the compiled kernels if the extra `fast` (numba) is installed and the cluster has at least 1,000 nodes. They
    take 120 to 145 MB of memory. Decisions are the same without them. Of lists with more than 20,000 nodes or pods,
    one compares each with earlier ones that are alike."""
    preempt_for_resizes: bool = False
    """Evict pods of lower priority from a node so that a running pod can be resized in place there, if the kubelet has
    deferred that because the node is full. In kube-scheduler this is alpha since Kubernetes 1.37 (feature gate
    `InPlacePodVerticalScalingSchedulerPreemption`). See deploy/KUBERNETES-API.md."""
    percentage_of_nodes_to_ask: Annotated[int, Meta(ge=0, le=100)] = 0
    """Share of the nodes that an extender is asked about first: the feasible nodes with the best scores, at least 100.
    If it rejects all of them, the scheduler asks about the next ones. 0: the share that kube-scheduler uses, from 50 %
    of few nodes to 5 % of 5,600 nodes and more."""

    @property
    def cache_bytes(self) -> int | None:
        """Return the same as `cache_mebibytes` in bytes."""
        return None if self.cache_mebibytes is None else self.cache_mebibytes << 20


class RebalancingSettings(Section, frozen=True):
    """Moves of running pods, where policies say `rebalance`: see policies/REBALANCING.md. Only a leader moves pods."""

    dry_run: bool = True
    """Plan moves and show them in the log, the metrics and on the status page, but evict nothing."""
    every: PositiveDuration = seconds(300)
    """Time between two passes."""
    most: Annotated[int, Meta(ge=0, le=1000)] = 5
    """Maximum number of moves of one pass."""
    most_per_node: Annotated[int, Meta(ge=0, le=1000)] = 1
    """The same, off one node."""
    most_per_workload: Annotated[int, Meta(ge=0, le=1000)] = 1
    """The same, of one controller."""
    most_per_namespace: Annotated[int, Meta(ge=0, le=1000)] = 3
    """The same, of one namespace."""
    most_per_hour: Annotated[int, Meta(ge=0, le=100_000)] = 60
    """Maximum number of evictions within an hour, over all passes."""
    reserve: PositiveDuration = seconds(300)
    """Time for which room is reserved for a replacement that has not come yet."""
    move_local_storage: bool = False
    """Also move pods with `emptyDir` on disk or `hostPath`."""


class ShadowSettings(Section, frozen=True):
    """Settings for `mode: shadow`."""

    scheduler_names: Annotated[tuple[Name, ...], Meta(min_length=1), EACH_ONCE] = ("default-scheduler",)
    """`spec.schedulerName` of the pods that another scheduler places, or with `policy-scheduler fleet` of the bindings.
    The scheduler decides them as if they used one of the top-level `schedulerNames`."""
    give_up_after: PositiveDuration = seconds(600)
    """Time after which a pod counts as `not-bound`: the policies select a node, but no scheduler has bound the pod. For
    bindings, the other scheduler says itself that it did not place them."""
    kept: Annotated[int, Meta(ge=0, le=100_000)] = 1000
    """Number of comparisons for `/debug/shadow`."""


class ExtenderSettings(Section, frozen=True):
    """Settings for `mode: extender`."""

    path: UrlPath = "/extender"
    """The path of kube-scheduler's `urlPrefix`; the verbs `filter`, `prioritize`, `preempt` and `bind` follow it."""
    kubernetes_rules: bool = False
    """Also evaluate Kubernetes' own filters and scores, as the policy defines them. Otherwise kube-scheduler does."""
    max_request_mebibytes: Annotated[int, Meta(ge=1, le=1024)] = 128
    """Maximum size of a request. 5,000 node names are 0.1 MiB; with `nodeCacheCapable: false`, 5,000 nodes are 50 MiB
    and more."""


class EstimatorSettings(Section, frozen=True):
    """Settings for `mode: estimator`. See deploy/FLEET.md."""

    cluster_name: Name | None = None
    """Name of this cluster in Karmada. About other clusters the server has no opinion. `mode: estimator` needs it."""
    host: str = "127.0.0.1"
    """Address of the gRPC port. In a pod, use `0.0.0.0`."""
    port: Port = 10352
    """The port of karmada-scheduler-estimator."""
    certificate_file: Path | None = None
    """Certificate in PEM; read again when it changes. Requires `keyFile`. None: the port is not encrypted."""
    key_file: Path | None = None
    """Key in PEM, without a password. Requires `certificateFile`."""
    client_ca_file: Path | None = None
    """CA certificates in PEM; read again when it changes. Clients then need a certificate by one of them. Requires
    `certificateFile`."""
    computation: PositiveDuration = seconds(1)
    """Maximum time to compute one answer. Most take 20 ms or less. If pods affect each other, as with anti-affinity,
    replicas are tried one after another, 3,000 per second on 5,000 nodes; the answer is then what fits until the time
    is over. Nothing else happens meanwhile, and karmada-scheduler waits 3 s, so do not use more than 2 s."""


KarmadaGate: TypeAlias = Literal["MultiplePodTemplatesScheduling", "SchedulingOvercommitProtection", "WorkloadAffinity"]


FleetEngine: TypeAlias = Literal["karmada", "multikueue", "ocm", "clusterprofile"]


class FleetSettings(Section, frozen=True):
    """Settings for `policy-scheduler fleet`, which decides over clusters for an engine such as Karmada."""

    engine: FleetEngine = "karmada"
    """`karmada`: decides its bindings. `multikueue`: nominates worker clusters for Workloads of Kueue. `ocm`: scores
    managed clusters of Open Cluster Management, and decides the Placements that ask for it. `clusterprofile`: chooses
    among the ClusterProfiles of a cluster inventory."""
    lease_name: Name = "policy-scheduler-fleet"
    """Name of its lease, in place of `leaderElection.leaseName`. Do not use the lease of karmada-scheduler."""
    feature_gates: Annotated[tuple[KarmadaGate, ...], EACH_ONCE] = ()
    """Feature gates that are on in your Karmada and concern its scheduler: `MultiplePodTemplatesScheduling`,
    `SchedulingOvercommitProtection`, `WorkloadAffinity`."""
    enable_empty_workload_propagation: bool = False
    """Also propagate a workload to clusters where it gets no replicas, as the flag of karmada-scheduler does."""
    parallel_writes: Annotated[int, Meta(ge=1, le=256)] = 16
    """Maximum number of bindings that are written at a time. One binding is never written twice at a time."""
    estimators: EstimatorsSettings | None = None
    """None: room follows from the status of the clusters. Only for Karmada."""
    nominate_more_after: PositiveDuration = seconds(300)
    """MultiKueue: if no cluster has admitted a Workload after this time, it is nominated to the next best, too."""
    profiles_namespace: Name = "cluster-inventory"
    """`clusterprofile`: namespace of the ClusterProfiles, of the PlacementDecisions that are written, and of the lease
    unless `leaderElection.leaseNamespace` is set."""


class TracingSettings(Section, frozen=True):
    """Attempts to schedule pods as OpenTelemetry traces; needs the extra `tracing`."""

    endpoint: Url
    """URL of a collector that accepts OTLP over HTTP; the default path is `/v1/traces`. For tokens and certificates,
    set the variables of OpenTelemetry, such as OTEL_EXPORTER_OTLP_HEADERS."""
    sampled_share: Annotated[float, Meta(ge=0, le=1)] = 0.01
    """Share of the pods to trace, each with all of its attempts. A trace takes up to a millisecond, so the scheduler
    sends at most 50 per second."""


class Settings(Section, frozen=True):
    """Everything an operator can set."""

    mode: Literal["scheduler", "shadow", "extender", "estimator"] = "scheduler"
    """`scheduler` places the pods of `schedulerNames`. `shadow` decides the pods of another scheduler, binds and writes
    nothing, and reports differences. `extender` answers kube-scheduler, which places the pods. `estimator` tells
    Karmada how many more replicas this cluster has room for."""
    scheduler_names: Annotated[tuple[Name, ...], Meta(min_length=1), EACH_ONCE] = ("policy-scheduler",)
    """`spec.schedulerName` of the pods to schedule; a policy can serve another name with its `scheduler` line. Use
    `default-scheduler` only if kube-scheduler does not run."""
    kubernetes: KubernetesSettings = msgspec.field(default_factory=KubernetesSettings)
    policies: PolicySettings = msgspec.field(default_factory=PolicySettings)
    prometheus: PrometheusSettings | None = None
    """None: there are no metrics, and every value of `promql` is missing."""
    http: HttpSettings = msgspec.field(default_factory=HttpSettings)
    log: LogSettings = msgspec.field(default_factory=LogSettings)
    decision_log: DecisionLogSettings = msgspec.field(default_factory=DecisionLogSettings)
    leader_election: LeaderElectionSettings = msgspec.field(default_factory=LeaderElectionSettings)
    sharding: ShardingSettings = msgspec.field(default_factory=ShardingSettings)
    scheduling: SchedulingSettings = msgspec.field(default_factory=SchedulingSettings)
    rebalancing: RebalancingSettings = msgspec.field(default_factory=RebalancingSettings)
    shadow: ShadowSettings = msgspec.field(default_factory=ShadowSettings)
    extenders: Annotated[tuple[HttpExtenderSettings, ...], Meta(max_length=MOST_EXTENDERS)] = ()
    """HTTP extenders that the scheduler asks about pods, as kube-scheduler does; `policyctl import --settings` writes
    them from its configuration. Only with `mode: scheduler`. See deploy/EXTENDERS.md."""
    extender: ExtenderSettings = msgspec.field(default_factory=ExtenderSettings)
    estimator: EstimatorSettings = msgspec.field(default_factory=EstimatorSettings)
    fleet: FleetSettings = msgspec.field(default_factory=FleetSettings)
    tracing: TracingSettings | None = None
    """None: no traces; OpenTelemetry is not loaded."""

    @property
    def watched(self) -> frozenset[str] | None:
        """Return the schedulers whose pods are decided though they are not ours; None where we place our own."""
        match self.mode:
            case "scheduler":
                return None
            case "shadow":
                return frozenset(self.shadow.scheduler_names)
            case "extender" | "estimator":
                return frozenset()
            case _:
                assert_never(self.mode)

    def effective(self) -> Settings:
        """Return the settings for the mode: only replicas that place pods elect a leader; some modes write nothing."""
        if self.mode == "scheduler":
            return replace(self, http=self.http.in_force())
        return replace(
            self,
            http=self.http.in_force(),
            leader_election=replace(self.leader_election, enabled=False),
            sharding=replace(self.sharding, enabled=False),
            extenders=(),
            policies=self.policies.without_writes() if self.mode in ("shadow", "estimator") else self.policies,
        )


_HEAD = {"apiVersion": {"const": API_VERSION}, "kind": {"const": KIND}}
"""The keys of a file that are no settings."""


def settings_schema() -> dict[str, Any]:
    """Return the JSON schema of the configuration file, for editors and for our own check."""
    schema = schema_of(Settings)
    return schema | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": KIND,
        "properties": _HEAD | schema["properties"],
        "required": [*_HEAD, *schema["required"]],
    }


def load_settings(path: Path, *, ignored: list[str] | None = None) -> Settings:
    """Read and check a configuration file.

    Args:
        path: of the file.
        ignored: as for `parse_settings`.

    Raises:
        DocumentError: it cannot be used; every problem has its line, what was expected and what to do.
    """
    return parse_settings(read_source(path), folder=path.parent, ignored=ignored)


def parse_settings(source: Source, *, folder: Path = Path(), ignored: list[str] | None = None) -> Settings:
    """Check a configuration text and return its settings.

    Args:
        source: the text.
        folder: where relative paths start.
        ignored: receives the keys that are left out, each with its line, because they resemble no setting: a later
            version has them, so this one can take the place of that one. None: they are errors, as all others are.

    Raises:
        DocumentError: as `load_settings`.
    """
    document, schema = parse_document(source), _document_schema()
    value = document.value
    if ignored is not None:
        foreign = schema.foreign_keys(value)
        value = without(value, foreign)
        ignored += (_placed(document, path) for path in foreign)
    found = schema.check(document, instead=value)
    if found:
        raise DocumentError(found)
    settings = build(Settings, without(value, [(key,) for key in _HEAD]), folder=folder)
    problems = [*_together(document, settings)]
    if problems:
        raise DocumentError(problems)
    return settings


def _placed(document: Document, path: tuple[Step, ...]) -> str:
    line, _ = document.source.position(document.span(path, key=True).start)
    return f"{path_text(path)} ({document.source.name}, line {line})"


@cache
def _document_schema() -> DocumentSchema:
    return DocumentSchema(settings_schema())


def _together(document: Document, settings: Settings) -> list[Diagnostic]:
    """Check what no single value can show."""
    found = []
    election = settings.leader_election
    for smaller, larger, low, high, spread in (
        ("renewDeadline", "leaseDuration", election.renew_deadline, election.lease_duration, 1.0),
        ("retryPeriod", "renewDeadline", election.retry_period, election.renew_deadline, JITTER),
    ):
        if low * spread >= high:
            times = f" × {spread:g}, by which tries are spread," if spread > 1.0 else ""
            message = f"leaderElection.{smaller} ({low:g} s){times} must be less than {larger} ({high:g} s)"
            found.append(document.error(("leaderElection", smaller), WRONG_VALUE, message=message))
    prometheus, tls = settings.prometheus, settings.http.tls
    if prometheus is not None:
        files = {
            "clientCertificateFile": prometheus.client_certificate_file,
            "clientKeyFile": prometheus.client_key_file,
        }
        found += _all_or_none(document, ("prometheus",), files)
    if tls is not None:
        files = {"certificateFile": tls.certificate_file, "keyFile": tls.key_file}
        found += _all_or_none(document, ("http", "tls"), files)
    if tls is not None and tls.client_names and tls.client_ca_file is None:
        message = "http.tls.clientNames needs `clientCaFile` beside it: no client is asked for a certificate without"
        found.append(document.error(("http", "tls", "clientNames"), MISSING_KEY, message=message))
    if settings.sharding.enabled and not settings.rebalancing.dry_run:
        message = "rebalancing.dryRun: false needs a leader, and with sharding.enabled there is none"
        found.append(document.error(("rebalancing", "dryRun"), WRONG_VALUE, message=message))
    for index, gate in enumerate(settings.kubernetes.switched_gates):
        if (problem := gate_problem(gate)) is not None:
            message = f"kubernetes.featureGates: {problem}"
            found.append(document.error(("kubernetes", "featureGates", index), WRONG_VALUE, message=message))
    estimator = settings.estimator
    files = {"certificateFile": estimator.certificate_file, "keyFile": estimator.key_file}
    found += _all_or_none(document, ("estimator",), files)
    if estimator.client_ca_file is not None and estimator.certificate_file is None:
        message = "estimator.clientCaFile needs `certificateFile` beside it"
        found.append(document.error(("estimator", "clientCaFile"), MISSING_KEY, message=message))
    if settings.mode == "estimator" and estimator.cluster_name is None:
        message = "mode: estimator needs `estimator.clusterName`: the name of this cluster in Karmada"
        found.append(document.error(("mode",), MISSING_KEY, message=message))
    found += check_estimators(document, settings.fleet.estimators)
    config_map = settings.policies.config_map
    if config_map is not None and len([part for part in config_map.split("/") if part]) != 2:
        message = f"policies.configMap: expected NAMESPACE/NAME, got {config_map}"
        found.append(document.error(("policies", "configMap"), WRONG_VALUE, message=message))
    found += check_extenders(document, settings.extenders)
    found += check_owners(document, settings.policies.owners)
    if any(owner.pods is not None for owner in settings.policies.owners):
        from kube_policy_scheduler.policy.policy_set import scope_problem  # it imports the language

        found += scope_problems(document, settings.policies.owners, scope_problem)
    return found


def _all_or_none(document: Document, path: tuple[str, ...], files: dict[str, Path | None]) -> Iterator[Diagnostic]:
    given = [name for name, file in files.items() if file is not None]
    absent = [name for name, file in files.items() if file is None]
    if given and absent:
        message = f"key `{given[0]}` needs `{absent[0]}` beside it"
        yield document.error((*path, given[0]), MISSING_KEY, message=message, key=True)
