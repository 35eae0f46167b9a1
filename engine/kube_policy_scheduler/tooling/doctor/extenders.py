"""Whether the HTTP extenders of a configuration answer, and whether they fit the size of the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kube_policy_scheduler.documents.extender_settings import HttpExtenderSettings
from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from kube_policy_scheduler.wording import listed, plural

MANY_NODES = 200
"""With this many nodes or more, sending whole Node objects for each pod takes long: each has about 10 KB."""
SLOW_SHARE = 0.5
"""Of the timeout."""


@dataclass(frozen=True, slots=True)
class ExtenderAnswer:
    """How an extender answered to a request that is about no pod."""

    settings: HttpExtenderSettings
    name: str
    problem: str
    """Why it did not answer; "" if it did."""
    seconds: float
    """Of the slowest answer."""
    absent: tuple[str, ...]
    """Verbs that it does not know."""


def extender_findings(inspection: Inspection, answers: Sequence[ExtenderAnswer]) -> Iterator[Finding]:
    """Look at each extender."""
    nodes = inspection.state.cluster.nodes.size
    for answer in answers:
        yield _finding(answer)
        settings = answer.settings
        if not settings.node_cache_capable and nodes >= MANY_NODES:
            text = f"it receives whole Node objects, and the cluster has {plural(nodes, 'node')}"
            advice = "if it knows the nodes itself, set `nodeCacheCapable: true`"
            yield Finding("extenders", answer.name, Status.WARNING, text, advice=advice)
        tls = settings.tls_config
        has_authority = tls is not None and (bool(tls.ca_data) or tls.ca_file is not None)
        accepts_all = (tls is not None and tls.insecure) or (settings.enable_HTTPS and not has_authority)
        if settings.url_prefix.startswith("https:") and accepts_all:
            advice = "name the certificate authority of the extender in `tlsConfig.caFile`"
            yield Finding("extenders", answer.name, Status.WARNING, "every certificate is accepted", advice=advice)


def _finding(answer: ExtenderAnswer) -> Finding:
    ignorable = answer.settings.ignorable
    if answer.problem:
        after = "it is ignorable, so pods are placed without it" if ignorable else "pods that it is asked about wait"
        status = Status.WARNING if ignorable else Status.PROBLEM
        return Finding("extenders", answer.name, status, f"{answer.problem}; {after}", advice="check urlPrefix")
    if answer.absent:
        text = f"answers HTTP 404 for {listed(answer.absent)}"
        advice = "check urlPrefix and the verbs; some extenders answer so to GET, and know the verb"
        return Finding("extenders", answer.name, Status.WARNING, text, advice=advice)
    if answer.seconds > SLOW_SHARE * answer.settings.http_timeout:
        text = f"takes {answer.seconds:.1f} s of the {answer.settings.http_timeout:g} s that it has"
        advice = "a pod waits for it in each attempt: make it faster, or raise `httpTimeout`"
        return Finding("extenders", answer.name, Status.WARNING, text, advice=advice)
    return Finding("extenders", answer.name, Status.OK, "answers")
