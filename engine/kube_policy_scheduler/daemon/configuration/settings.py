"""What an operator can set, with unit, default and reason. Knows YAML's keys, not what they are used for.

The file is `kind: PolicySchedulerConfiguration`; every key is a field here in camel case, and everything but
`apiVersion` and `kind` may be left out. Relative paths start at the file's own folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, assert_never

from kube_policy_scheduler.adapters.kube.lease import JITTER
from kube_policy_scheduler.adapters.loopback import is_loopback
from kube_policy_scheduler.diagnostics import Diagnostic, Source
from kube_policy_scheduler.documents.codes import MISSING_KEY, WRONG_VALUE
from kube_policy_scheduler.documents.http_url import PATTERN
from kube_policy_scheduler.documents.schema import EXPECTED, DocumentSchema
from kube_policy_scheduler.documents.shape import DURATION_SECONDS, Shape, build, schema_of
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_document, read_source

API_VERSION = "policy-scheduler/v1alpha1"
KIND = "PolicySchedulerConfiguration"

Duration: TypeAlias = Annotated[float, DURATION_SECONDS]
"""In seconds; written `15s`, `2min`."""
PositiveDuration: TypeAlias = Annotated[
    float,
    DURATION_SECONDS,
    Shape(
        {"pattern": r"^(?=.*[1-9])(\d+(\.\d+)?(ms|s|min|h|d))+$", EXPECTED: "a duration above zero such as 15s or 2min"}
    ),
]
Port: TypeAlias = Annotated[
    int, Shape({"minimum": 0, "maximum": 65535, EXPECTED: "a port: 0 to 65535, 0 for a free one"})
]
Name: TypeAlias = Annotated[
    str,
    Shape(
        {
            "pattern": r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
            EXPECTED: "a name as Kubernetes allows it: lower case letters, digits, - and .",
        }
    ),
]
Url: TypeAlias = Annotated[
    str, Shape({"pattern": PATTERN, EXPECTED: "a URL such as http://prometheus.monitoring:9090"})
]
UrlPath: TypeAlias = Annotated[str, Shape({"pattern": r"^(/[-A-Za-z0-9_.~]+)+$", EXPECTED: "a path such as /extender"})]


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """How to reach the API server."""

    kubeconfig: Path | None = None
    """None: the service account inside a pod; outside it $KUBECONFIG, then ~/.kube/config, as kubectl does."""
    context: str | None = None
    """A context of the kubeconfig; None: its current one."""


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """Where policies come from."""

    path: Path = Path("/etc/policy-scheduler/policies")
    """A directory of `.policy` files, usually a ConfigMap's volume (the whole volume: with subPath nothing is ever
    updated), or one file."""
    config_map: str | None = None
    """`NAMESPACE/NAME` of the ConfigMap behind the path: a broken reload becomes an Event on it, and each replica says
    what it decides by, for `policyctl rollout status`. None: neither."""
    checksums: bool = False
    """Take policies over only with a file `SHA256SUMS` beside them that lists exactly these, as sha256sum writes it."""
    public_key_file: Path | None = None
    """Take policies over only where `SHA256SUMS.sig` beside them is the signature of `SHA256SUMS` by this Ed25519 key,
    in PEM; implies `checksums`. Keep it where who writes policies cannot write."""


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Where `promql("…")` is asked. How often, and how fresh answers must be, each policy says itself."""

    url: Url
    """Base of the HTTP API: Prometheus, Thanos, Mimir, VictoriaMetrics."""
    bearer_token_file: Path | None = None
    """Read again for every request, because projected tokens change about hourly."""
    ca_file: Path | None = None
    """Certificate authorities to trust instead of the system's."""
    client_certificate_file: Path | None = None
    """For mutual TLS; needs `clientKeyFile`."""
    client_key_file: Path | None = None
    """For mutual TLS; needs `clientCertificateFile`."""
    timeout: PositiveDuration = 5.0
    """Seconds for one query. Decisions never wait for it; five are long for an instant query over all nodes."""
    node_label: str | None = None
    """The label that names the node, for queries that do not say `by`; None: found by itself, from `node`,
    `kubernetes_node`, … to `instance` with an address."""
    prime_timeout: Duration = 3.0
    """Seconds that new policies wait for the first values of their new metrics before they are used without."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The certificate of our own port. `tls: {}` alone: one that is made at the start, as kube-scheduler does; it
    keeps tokens from being read on the way, but clients cannot check it."""

    certificate_file: Path | None = None
    """PEM, with the certificates of authorities between behind it; read again when it changes. Needs `keyFile`."""
    key_file: Path | None = None
    """PEM, without a password. Needs `certificateFile`."""
    client_ca_file: Path | None = None
    """Authorities of clients' certificates, in PEM; read again when it changes. With `mode: extender` the verbs are
    then for clients with such a certificate (kube-scheduler's `tlsConfig`), or a token where `authentication` is on."""
    client_names: tuple[str, ...] = ()
    """Common names of certificates that are let in, such as `system:kube-scheduler`; empty: every one of the
    authorities. Name them where the authority is the cluster's own: it also signs for nodes and users."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where probes, metrics and the status page are served."""

    host: str = "127.0.0.1"
    """`0.0.0.0` in a pod, so that the kubelet and Prometheus can reach it. Where others can connect, the port speaks
    HTTPS and asks for tokens, unless `authentication: none` says otherwise."""
    port: Port = 10259
    """As kube-scheduler's."""
    tls: TlsSettings | None = None
    """None: with authentication a certificate that is made at the start, as `{}`; without it plain HTTP."""
    authentication: Literal["none", "kubernetes"] | None = None
    """`kubernetes`: who asks for anything but the probes needs a token that the API server knows (TokenReview) and the
    right to `get` the path (SubjectAccessReview of nonResourceURLs), as with kube-scheduler. Needs the ClusterRole
    `system:auth-delegator` for ourselves. `none`: everyone who can connect sees pods, nodes and policies. None:
    `kubernetes` where others can connect to `host`, `none` where only this machine can."""

    def in_force(self) -> HttpSettings:
        """Return what is in force where nothing was said."""
        authentication = self.authentication or ("none" if is_loopback(self.host) else "kubernetes")
        tls = self.tls if authentication == "none" else self.tls or TlsSettings()
        return replace(self, authentication=authentication, tls=tls)


@dataclass(frozen=True, slots=True)
class DecisionLogSettings:
    """What is kept of decisions, for `/debug/decisions`, the status page, `policyctl why`, `impact` and `capture`."""

    kept: Annotated[int, Shape({"minimum": 0, "maximum": 1_000_000})] = 10_000
    """Decisions kept in memory, about 1 KB each; 0 for none."""
    directory: Path | None = None
    """Also written to `decisions.jsonl` in this folder, which only this process may use. None: memory only."""
    file_mebibytes: Annotated[int, Shape({"minimum": 1, "maximum": 4096})] = 64
    """Size at which the next file is begun: about 100,000 decisions."""
    files: Annotated[int, Shape({"minimum": 1, "maximum": 1000})] = 5
    """Files kept, the current one included."""
    repeat_after: Duration = 300.0
    """For so long a pod's refusal for the same reason is counted and not logged again."""
    detail_share: Annotated[float, Shape({"minimum": 0, "maximum": 1})] = 0.01
    """Share of the time that may be spent on scores by clause and node: all decisions of a quiet cluster, up to 15 a
    second at 5,000 nodes, whose bindings wait 0.7 ms for it. 0 for none."""
    best_nodes: Annotated[int, Shape({"minimum": 1, "maximum": 100})] = 3
    """Nodes whose scores are kept, the chosen one included."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How to log."""

    format: Literal["text", "json"] = "text"
    """`json` for collectors: one object a line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug` shows every decision: too much for a busy cluster."""


@dataclass(frozen=True, slots=True)
class LeaderElectionSettings:
    """One replica decides, the others stand by with warm caches."""

    enabled: bool = True
    """Off only where there is never a second replica: two that decide would fight over nodes."""
    lease_name: Name = "policy-scheduler"
    """Replicas with the same name compete; schedulers of different names need different ones."""
    lease_namespace: Name | None = None
    """None: the pod's own namespace; outside a pod kube-system."""
    lease_duration: PositiveDuration = 15.0
    """Seconds until others may take over; as kube-scheduler."""
    renew_deadline: PositiveDuration = 10.0
    """Seconds without a renewal after which the leader stops deciding; less than `leaseDuration`."""
    retry_period: PositiveDuration = 2.0
    """Seconds between two tries; less than `renewDeadline`."""


@dataclass(frozen=True, slots=True)
class ShardingSettings:
    """Several replicas decide at once, each for its own nodes. For more pods a second than one process decides."""

    enabled: bool = False
    """On: all replicas work, and no leader is elected. The names and times of the Leases are `leaderElection`'s."""
    unit: Literal["namespace", "pod"] = "namespace"
    """What one replica decides alone. `namespace`: what relates pods to each other holds exactly. `pod`: also within a
    namespace the work is shared; pods with affinity to others, hard spread constraints or a gang still go by namespace,
    but a pod that only another's anti-affinity is about may come beside it within the same moment."""


@dataclass(frozen=True, slots=True)
class SchedulingSettings:
    """How decisions are made and carried out."""

    seed: Annotated[int, Shape({"minimum": 0, "maximum": 2**63 - 1})] = 0
    """Breaks ties between equal nodes, together with the pod's and the node's names. The same everywhere by default,
    so that a decision can be repeated."""
    parallel_binds: Annotated[int, Shape({"minimum": 1, "maximum": 1024})] = 128
    """Bindings under way at the same time. With 5 ms each, 128 give more than an API server takes."""
    device_annotation: Literal["protected", "trusted"] = "protected"
    """When the annotation `policy-scheduler/devices` of a bound pod counts. `protected`: while the
    ValidatingAdmissionPolicy `policy-scheduler-devices` (in `deploy/base`) keeps all but the scheduler from writing it.
    `trusted`: always, no matter who wrote it."""
    recount_every: Duration = 5.0
    """Seconds between two looks at whether some nodes' columns are what a recount of their pods says, and pending pods
    where they should be. A look takes 2 ms: 0.04 % of a core. `0s` for never."""


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """With `mode: shadow`: whose pods are looked at."""

    scheduler_names: Annotated[tuple[Name, ...], Shape({"minItems": 1, "uniqueItems": True})] = ("default-scheduler",)
    """`spec.schedulerName` of the pods that another scheduler places. They are decided as though they asked for one of
    the top level's `schedulerNames`."""
    give_up_after: PositiveDuration = 600.0
    """Seconds after which a pod that we would place and nobody does is counted as such, once."""
    kept: Annotated[int, Shape({"minimum": 0, "maximum": 100_000})] = 1000
    """Comparisons kept for `/debug/shadow`."""


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """With `mode: extender`: how kube-scheduler asks."""

    path: UrlPath = "/extender"
    """The end of kube-scheduler's `urlPrefix`; behind it are the verbs `filter`, `prioritize`, `preempt`, `bind`."""
    kubernetes_rules: bool = False
    """On: Kubernetes' own filters and scores are asked too, as the policy has them. Off: kube-scheduler does that."""
    max_request_mebibytes: Annotated[int, Shape({"minimum": 1, "maximum": 1024})] = 128
    """Of one request. 5,000 names are 0.1 MiB; with `nodeCacheCapable: false` 5,000 nodes are 50 MiB and more."""


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Attempts to schedule pods as OpenTelemetry traces; needs the extra `tracing`."""

    endpoint: Url
    """Of a collector that takes OTLP over HTTP; without a path, `/v1/traces`. Tokens and certificates are read from
    OpenTelemetry's variables, such as OTEL_EXPORTER_OTLP_HEADERS."""
    sampled_share: Annotated[float, Shape({"minimum": 0, "maximum": 1})] = 0.01
    """Share of the pods that are traced, each with all of its attempts. One takes up to a millisecond, so no more than
    50 a second are sent."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything an operator can set."""

    mode: Literal["scheduler", "shadow", "extender"] = "scheduler"
    """`scheduler` places the pods of `schedulerNames`. `shadow` decides the pods of another scheduler, binds nothing,
    writes nothing, and reports where it differs. `extender` answers kube-scheduler, which keeps placing the pods."""
    scheduler_names: Annotated[tuple[Name, ...], Shape({"minItems": 1, "uniqueItems": True})] = ("policy-scheduler",)
    """`spec.schedulerName` of the pods to schedule; a policy can serve another with its `scheduler` line. Put
    `default-scheduler` here only where kube-scheduler does not run."""
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    policies: PolicySettings = field(default_factory=PolicySettings)
    prometheus: PrometheusSettings | None = None
    """None: there are no metrics, and every value of `promql` is missing."""
    http: HttpSettings = field(default_factory=HttpSettings)
    log: LogSettings = field(default_factory=LogSettings)
    decision_log: DecisionLogSettings = field(default_factory=DecisionLogSettings)
    leader_election: LeaderElectionSettings = field(default_factory=LeaderElectionSettings)
    sharding: ShardingSettings = field(default_factory=ShardingSettings)
    scheduling: SchedulingSettings = field(default_factory=SchedulingSettings)
    shadow: ShadowSettings = field(default_factory=ShadowSettings)
    extender: ExtenderSettings = field(default_factory=ExtenderSettings)
    tracing: TracingSettings | None = None
    """None: there are no traces, and nothing of OpenTelemetry is loaded."""

    @property
    def watched(self) -> frozenset[str] | None:
        """Return the schedulers whose pods are decided though they are not ours; None where we place our own."""
        match self.mode:
            case "scheduler":
                return None
            case "shadow":
                return frozenset(self.shadow.scheduler_names)
            case "extender":
                return frozenset()
            case _:
                assert_never(self.mode)

    def effective(self) -> Settings:
        """Return the settings as the mode has them: who places no pods elects nobody, and a shadow writes nothing."""
        if self.mode == "scheduler":
            return replace(self, http=self.http.in_force())
        return replace(
            self,
            http=self.http.in_force(),
            leader_election=replace(self.leader_election, enabled=False),
            sharding=replace(self.sharding, enabled=False),
            policies=replace(self.policies, config_map=None) if self.mode == "shadow" else self.policies,
        )


def settings_schema() -> dict[str, Any]:
    """Return the JSON schema of the configuration file, for editors and for our own check."""
    schema = schema_of(Settings)
    head = {"apiVersion": {"const": API_VERSION}, "kind": {"const": KIND}}
    return schema | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": KIND,
        "properties": head | schema["properties"],
        "required": ["apiVersion", "kind", *schema["required"]],
    }


def load_settings(path: Path) -> Settings:
    """Read and check a configuration file.

    Raises:
        DocumentError: it cannot be used; every problem has its line, what was expected and what to do.
    """
    return parse_settings(read_source(path), folder=path.parent)


def parse_settings(source: Source, *, folder: Path = Path()) -> Settings:
    """Check a configuration text and return its settings.

    Args:
        source: the text.
        folder: where relative paths start.

    Raises:
        DocumentError: as `load_settings`.
    """
    document = parse_document(source)
    found = _document_schema().check(document)
    if found:
        raise DocumentError(found)
    settings = build(Settings, document.value, folder=folder)
    problems = [*_together(document, settings)]
    if problems:
        raise DocumentError(problems)
    return settings


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
    config_map = settings.policies.config_map
    if config_map is not None and len([part for part in config_map.split("/") if part]) != 2:
        message = f"policies.configMap: expected NAMESPACE/NAME, got {config_map}"
        found.append(document.error(("policies", "configMap"), WRONG_VALUE, message=message))
    return found


def _all_or_none(document: Document, path: tuple[str, ...], files: dict[str, Path | None]) -> Iterator[Diagnostic]:
    given = [name for name, file in files.items() if file is not None]
    absent = [name for name, file in files.items() if file is None]
    if given and absent:
        message = f"key `{given[0]}` needs `{absent[0]}` beside it"
        yield document.error((*path, given[0]), MISSING_KEY, message=message, key=True)
