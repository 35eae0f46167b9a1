"""All examinations in order, and those of pods and labels: who governs what, and which labels policies ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_policy_scheduler.cluster.defaulting import DEFAULT_SCHEDULER_NAME
from kube_policy_scheduler.cluster.prices import PRICE_KEY, prices
from kube_policy_scheduler.diagnostics import closest
from kube_policy_scheduler.lang.typed import Apply, Read, Typed, below
from kube_policy_scheduler.tooling.doctor.access import Access, access_findings
from kube_policy_scheduler.tooling.doctor.admission import admission_findings
from kube_policy_scheduler.tooling.doctor.devices import device_findings
from kube_policy_scheduler.tooling.doctor.extenders import ExtenderAnswer, extender_findings
from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from kube_policy_scheduler.tooling.doctor.kept_results import kept_results_findings
from kube_policy_scheduler.tooling.doctor.kernels import KernelSupport, kernel_findings
from kube_policy_scheduler.tooling.doctor.kubernetes import kubernetes_findings
from kube_policy_scheduler.tooling.doctor.metrics import metric_findings
from kube_policy_scheduler.tooling.doctor.models import model_findings
from kube_policy_scheduler.tooling.doctor.queues import queue_findings
from kube_policy_scheduler.tooling.doctor.rules import rule_findings
from kube_policy_scheduler.tooling.doctor.unknown_fields import UnknownFields, unknown_field_findings
from kube_policy_scheduler.tooling.policy_reads import KeyRead, expressions_of, key_reads
from kube_policy_scheduler.wording import plural, some


def pod_findings(inspection: Inspection) -> Iterator[Finding]:
    """Look at who governs what."""
    policy_set, templates = inspection.policy_set, inspection.state.cluster.templates
    for policy in policy_set.policies:
        pods = inspection.governed[policy.name]
        place = policy.compiled.checked.source.name
        waiting = sum(not pod.spec.node_name for pod in pods)
        if pods:
            text = f"governs {plural(len(pods), 'pod')}, of which {waiting} wait{'s' if waiting == 1 else ''}"
            yield Finding("pods", f"policy {policy.name}", Status.OK, text, place)
        else:
            serves = policy.scheduler or ", ".join(sorted(policy_set.default_schedulers))
            advice = f"it is for pods with schedulerName {serves} that match its `for pods`, if it has one"
            yield Finding("pods", f"policy {policy.name}", Status.WARNING, "governs no pod", place, advice)
    lost = [
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in inspection.pods
        if pod.spec.scheduler_name in policy_set.schedulers and policy_set.governing(templates.pod(pod)) is None
    ]
    served = ", ".join(sorted(policy_set.schedulers))
    if lost:
        ask = "asks for it and is" if len(lost) == 1 else "ask for it and are"
        text = f"{plural(len(lost), 'pod')} {ask} governed by no policy: {some(lost)}"
        advice = "they stay pending: add a policy without `for pods` and with a low priority"
        yield Finding("pods", f"scheduler {served}", Status.PROBLEM, text, advice=advice)
    yield from _misspelt(inspection)


def _misspelt(inspection: Inspection) -> Iterator[Finding]:
    schedulers: dict[str, list[str]] = {}
    for pod in inspection.pods:
        name = pod.spec.scheduler_name
        if not pod.spec.node_name and name not in inspection.policy_set.schedulers and name != DEFAULT_SCHEDULER_NAME:
            schedulers.setdefault(name, []).append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    for name, waiting in sorted(schedulers.items()):
        meant = closest(name, inspection.policy_set.schedulers)
        if meant is not None:
            text = f"{plural(len(waiting), 'pod')} {'waits' if len(waiting) == 1 else 'wait'} for it: {some(waiting)}"
            yield Finding("pods", f"scheduler {name}", Status.WARNING, text, advice=f"did you mean `{meant}`?")


def label_findings(inspection: Inspection) -> Iterator[Finding]:
    """Look at every label and annotation that the policies read."""
    groups: dict[tuple[str, str, str], list[KeyRead]] = {}
    for read in key_reads(inspection.policy_set.policies):
        groups.setdefault((read.subject, read.what, read.key), []).append(read)
    for (subject, what, key), reads in groups.items():
        things = _things(inspection, subject, what, reads)
        if not things:
            where = (
                "the cluster has no nodes" if subject == "node" else "no pod is governed by the policies that read it"
            )
            yield _finding(reads[0], Status.UNCHECKED, where)
            continue
        yield from key_findings(key, reads, things)


def key_findings(key: str, reads: Sequence[KeyRead], things: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Say on how many things a label or an annotation is, and whether it has the values that it is compared with.

    Args:
        key: of the label.
        reads: the places at which policies read it.
        things: labels, or annotations, by the name of what has them.
    """
    yield _presence(key, reads, things)
    yield from _values(key, reads, things)


def price_findings(inspection: Inspection) -> Iterator[Finding]:
    """Say how many nodes have a price, where a policy reads prices."""
    nodes = inspection.state.cluster.nodes
    without = [name for name, price in zip(nodes.names, prices(nodes).tolist(), strict=True) if price != price]
    for policy in inspection.policy_set.policies:
        span = next((part.span for root in expressions_of(policy) for part in below(root) if _reads_price(part)), None)
        if span is None:
            continue
        having = nodes.size - len(without)
        text = f"on {having} of {plural(nodes.size, 'node')}" + (f"; not on {some(without)}" if without else "")
        status = Status.OK if having else Status.WARNING if nodes.size else Status.UNCHECKED
        advice = f"annotate nodes with {PRICE_KEY}, their price per hour" if status is Status.WARNING else ""
        yield Finding("prices", "node.price", status, text, str(span), advice)


def _reads_price(part: Typed) -> bool:
    if isinstance(part, Apply):
        return "node.price" in part.builtin.reads
    return isinstance(part, Read) and part.field.path == "node.price"


def _things(inspection: Inspection, subject: str, what: str, reads: Sequence[KeyRead]) -> dict[str, Mapping[str, str]]:
    """Return the labels, or annotations, of what the policies read them of, by name."""
    if subject == "node":
        named = {info.name: info.node.metadata for info in inspection.state.cluster.nodes.infos}
    else:
        policies = dict.fromkeys(read.policy for read in reads)
        pods = (pod for name in policies for pod in inspection.governed[name])
        named = {f"{pod.metadata.namespace}/{pod.metadata.name}": pod.metadata for pod in pods}
    return {name: (meta.labels if what == "label" else meta.annotations) or {} for name, meta in named.items()}


def _presence(key: str, reads: Sequence[KeyRead], things: Mapping[str, Mapping[str, str]]) -> Finding:
    noun = reads[0].subject
    without = sorted(name for name, labels in things.items() if key not in labels)
    having = len(things) - len(without)
    share = f"on {having} of {plural(len(things), noun)}"
    if not without:
        return _finding(reads[0], Status.OK, share)
    if having:
        return _finding(reads[0], Status.OK, f"{share}; not on {some(without)}")
    known = Counter(other for labels in things.values() for other in labels)
    meant = meant_key(key, known)
    if meant is not None:
        return _finding(reads[0], Status.PROBLEM, share, f"did you mean `{meant}`? it is on {known[meant]}")
    expected = all(read.negated for read in reads)
    advice = "" if expected else _absent(noun, compared=any(read.values for read in reads))
    return _finding(reads[0], Status.OK if expected else Status.WARNING, share, advice)


def _absent(noun: str, *, compared: bool) -> str:
    why = ": an absent label equals nothing" if compared else ""
    return f"label {noun}s with it, or remove the clause{why}"


def meant_key(key: str, known: Mapping[str, int]) -> str | None:
    """Return the key that was probably meant: written otherwise, with another prefix, or nearly the same."""
    by_case = {other.lower(): other for other in known}
    if key.lower() in by_case:
        return by_case[key.lower()]
    name = key.rpartition("/")[2].lower()
    same_name = [other for other in known if other.rpartition("/")[2].lower() == name]
    if same_name:
        return max(same_name, key=lambda other: (known[other], other))
    return closest(key, known)


def _values(key: str, reads: Iterable[KeyRead], things: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    there = Counter(labels[key] for labels in things.values() if key in labels)
    if not there:
        return
    for read in reads:
        for value in read.values:
            if value in there:
                continue
            meant = next((other for other in there if other.lower() == value.lower()), None) or closest(value, there)
            text = f"no {read.subject} has the value `{value}`"
            if meant is not None:
                yield _finding(read, Status.WARNING, text, f"did you mean `{meant}`? {there[meant]} have it")
            else:
                others = not read.needs_each and any(other in there for other in read.values)
                values = ", ".join(f"`{other}`" for other, _ in there.most_common(5))
                more = f" and {len(there) - 5} more" if len(there) > 5 else ""
                status = Status.OK if read.negated or others else Status.WARNING
                yield _finding(read, status, text, f"there are: {values}{more}")


def _finding(read: KeyRead, status: Status, text: str, advice: str = "") -> Finding:
    subject = f"{read.subject} {read.what} {read.key}"
    return Finding(f"{read.what}s", subject, status, text, str(read.span), advice)


def examine(
    inspection: Inspection,
    *,
    access: Access | None,
    kernels: KernelSupport | None = None,
    extenders: Sequence[ExtenderAnswer] = (),
    unknown: UnknownFields | None = None,
) -> tuple[Finding, ...]:
    """Return everything that was found, and what could not be looked at."""
    return (
        *pod_findings(inspection),
        *label_findings(inspection),
        *price_findings(inspection),
        *metric_findings(inspection),
        *model_findings(inspection),
        *rule_findings(inspection),
        *device_findings(inspection),
        *queue_findings(inspection),
        *extender_findings(inspection, extenders),
        *access_findings(access),
        *admission_findings(access.admission if access is not None else None),
        *kubernetes_findings(inspection),
        *unknown_field_findings(unknown),
        *kernel_findings(inspection, kernels),
        *kept_results_findings(inspection),
    )


def is_found(findings: Sequence[Finding]) -> bool:
    """Return whether anything is not as it should be; what could not be checked is not known to be wrong."""
    return any(one.status in (Status.WARNING, Status.PROBLEM) for one in findings)
