"""A decision, reduced and written as a test: `policyctl capture` without its files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.yaml_document import Document
from kube_policy_scheduler.policy.answer import GangWaits, Held, answer
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.times import rfc3339
from kube_policy_scheduler.tooling.capture.draft import Draft, draft, trimmed
from kube_policy_scheduler.tooling.capture.reduce import DecisionSummary, ReducibleInputs, reduced
from kube_policy_scheduler.tooling.cluster_state import stored_objects
from kube_policy_scheduler.tooling.policy_reads import fields
from kube_policy_scheduler.tooling.snapshot.fields import Json, recorded_objects
from kube_policy_scheduler.tooling.snapshot.metrics import recorded_metrics
from kube_policy_scheduler.tooling.snapshot.pseudonyms import Pseudonyms, anonymised
from kube_policy_scheduler.wording import part_of

_MOST_FILTERED = 8
"""Refused nodes up to which the test says of each why."""
_REPORT = "please report it, with a snapshot"
_NOWHERE = Document(Source("<capture>", ""), value={}, root=None)


class NotReproduced(Exception):
    """The decision comes out otherwise in the form of a test; the text says why."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A decision as a test."""

    document: Json
    """The test file, but for `policy` and `cluster`, which name files."""
    others: tuple[Json, ...]
    """Objects for a fixture file beside it; empty where none matter."""
    verdict: DecisionSummary
    nodes: tuple[int, int]
    """How many there were, and how many are left."""
    pods: tuple[int, int]
    trials: int
    same_margin: bool

    @property
    def kept(self) -> str:
        """Return how many nodes and pods are left, in words."""
        nodes, pods = (part_of(left, there, noun) for (there, left), noun in ((self.nodes, "node"), (self.pods, "pod")))
        return f"{nodes} and {pods}"


def frozen(
    reducible: ReducibleInputs,
    *,
    scheduler: str,
    annotations: Collection[str] = (),
    names: Pseudonyms | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Frozen:
    """Return the smallest test found that repeats a decision.

    Args:
        reducible: the decision.
        scheduler: the scheduler name of pods that name none in the test.
        annotations: keys that the policies read.
        names: pseudonyms to use; None keeps all names.
        progress: receives what is tried.

    Raises:
        NotReproduced: a test file can't express something that the decision hangs on.
    """
    whole, reducible = answer(reducible.inputs()), reducible.alone()
    if isinstance(whole, Held) and whole.alone is not None:
        raise NotReproduced(f"{whole.reason}: a test of one decision knows of no other pods; write a case with `queue`")
    if isinstance(whole, GangWaits) and whole.requirement is None:
        raise NotReproduced(f"it is held: {whole.text}; a test of that is an error, as nothing is decided")
    before = (len(reducible.nodes), len(reducible.placed))
    small = reduced(reducible, progress=progress)
    if isinstance(whole, GangWaits) and small.verdict.held is None and not small.verdict.waits:
        alone = _described(small.verdict)
        raise NotReproduced(f"it is held: {whole.text}; a test knows of no pods that wait, and there {alone}")
    left = _by_name(small.reducible)
    wanted = small.verdict
    if names is not None:
        left, wanted = _renamed(left, wanted, annotations, names)
    case = f"{left.pod.metadata.name} {_ends(wanted, is_short=isinstance(whole, GangWaits))}"

    def form(thing: Any) -> Json:
        return recorded_objects([thing], annotations=annotations)[0]

    made = draft(left, form, scheduler=scheduler, case=case)
    got = made.decided()
    if got is None or not got.repeats(wanted, margin=True):
        raise NotReproduced(f"{_described(wanted)}, but as a test {_described(got)}: {_REPORT}")
    made = trimmed(made, wanted, progress=progress)
    return Frozen(
        document=_document(made, wanted, is_short=isinstance(whole, GangWaits)),
        others=made.others,
        verdict=wanted,
        nodes=(before[0], len(made.nodes)),
        pods=(before[1], len(made.placed)),
        trials=reducible.trials[0],
        same_margin=small.same_margin,
    )


def _ends(verdict: DecisionSummary, *, is_short: bool) -> str:
    """Return what becomes of a pod, for the name of its case. is_short: whether its gang has too few pods."""
    if verdict.held is not None:
        return "is held"
    if is_short:
        return "waits for its gang"
    return f"goes to {verdict.host}" if verdict.host else "fits nowhere"


def _described(verdict: DecisionSummary | None) -> str:
    if verdict is None:
        return "it cannot be decided"
    if not verdict.governed:
        return "the policy does not govern it"
    if verdict.held is not None:
        return f"it is held: {verdict.held}"
    if verdict.domain is not None:
        return f"no domain has room for {verdict.domain}"
    return f"it goes to {verdict.host}" if verdict.host is not None else f"no node fits ({verdict.cause})"


def _table(reducible: ReducibleInputs) -> NodeTable:
    table = NodeTable()
    for node in reducible.nodes:
        table.set(node)
    return table


def _unnamed(text: str, kind: str) -> str:
    return text


def _keys(reducible: ReducibleInputs) -> frozenset[str]:
    """Return the texts of the pod and of the nodes: no other value of a label can be looked up."""
    metas = [reducible.pod.metadata, *(node.metadata for node in reducible.nodes)]
    texts = {text for meta in metas for text in (*(meta.labels or {}).values(), *(meta.annotations or {}).values())}
    return frozenset(texts | {name for meta in metas for name in (meta.name, meta.namespace)})


def _by_name(reducible: ReducibleInputs, named: Callable[[str, str], str] = _unnamed) -> ReducibleInputs:
    """Return the decision with each sample under its node's name, as a test gives it, not under an address."""
    policy = reducible.rules.policy
    queries = policy.queries if policy is not None else ()
    form = recorded_metrics(queries, signals=reducible.signals, nodes=_table(reducible), now=reducible.now, named=named)
    readings = []
    for query in queries:
        answer = form.get(query.promql)
        if answer is None:
            continue
        if not isinstance(answer, dict) or answer.keys() == {"value", "age"}:
            value, age = _sample(answer)
            at = reducible.now - age
            readings.append(Reading(query.promql, (), evaluated_at=at, fetched_at=at, scalar=value))
            continue
        samples = ((name, *_sample(sample)) for name, sample in answer.items())
        series = tuple(Series(query.labels_of(name), value, reducible.now - age) for name, value, age in samples)
        readings.append(Reading(query.promql, series, evaluated_at=reducible.now, fetched_at=reducible.now))
    return replace(reducible, signals=Signals.of(readings))


def _sample(value: Any) -> tuple[float, float]:
    if isinstance(value, dict):
        return float(value["value"]), float(value["age"].removesuffix("s"))
    return float(value), 0.0


def _renamed(
    reducible: ReducibleInputs, verdict: DecisionSummary, annotations: Collection[str], names: Pseudonyms
) -> tuple[ReducibleInputs, DecisionSummary]:
    things = [*reducible.nodes, reducible.pod, *reducible.placed, *reducible.others]
    hidden = anonymised(recorded_objects(things, annotations=annotations), names)
    back = stored_objects(
        [FixtureObject(one, _NOWHERE, ()) for one in hidden], scheduler=reducible.pod.spec.scheduler_name
    )
    pod = back.pop(len(reducible.nodes))
    with_signals = _by_name(reducible, named=names.of)
    made = ReducibleInputs.of(back, pod, reducible.rules, seed=reducible.seed, now=reducible.now)
    made = replace(made.alone(), signals=with_signals.signals, trials=reducible.trials, kubernetes=reducible.kubernetes)
    got = made.verdict()
    expected = replace(
        verdict,
        host=names.of(verdict.host) if verdict.host is not None else None,
        next=names.of(verdict.next) if verdict.next is not None else None,
        evicted=got.evicted if len(got.evicted) == len(verdict.evicted) else verdict.evicted,
        devices=got.devices if len(got.devices) == len(verdict.devices) else verdict.devices,  # in the order of names
        waits=got.waits if bool(got.waits) == bool(verdict.waits) else verdict.waits,  # the gang's name is in it
        lacks=got.lacks if len(got.lacks) == len(verdict.lacks) else verdict.lacks,  # reasons have names in them
    )
    if verdict.tied and got.tied:
        return made, got  # ties are broken by hashes of names
    if not got.repeats(expected, margin=True):
        raise NotReproduced(
            f"{_described(expected)}, but under other names {_described(got)}: the policies look at a part of a name,"
            " or at the value of a label: give --keep LABEL"
        )
    return made, got


# --- the file --------------------------------------------------------------------------------------------


def _document(made: Draft, verdict: DecisionSummary, *, is_short: bool) -> Json:
    reducible = made.reducible
    rules = reducible.kubernetes
    document: Json = {"kubernetes": str(rules.version)}
    if rules.gates:
        document["featureGates"] = list(rules.gates)
    document["now"] = rfc3339(reducible.now)
    if verdict.tied:
        document |= {"seed": reducible.seed, "tie": "ok"}
    if made.nodes:
        document["nodes"] = list(made.nodes)
    if made.placed:
        document["pods"] = _counted(made.placed)
    policy = reducible.rules.policy
    if policy is not None and policy.queries:
        document["metrics"] = recorded_metrics(
            policy.queries,
            signals=reducible.signals,
            nodes=_table(reducible),
            now=reducible.now,
            keys=_keys(reducible),
        )
    case: Json = {"name": made.case, "pod": made.pod}
    info = reducible.inputs().pod
    if policy is not None and info.created and _reads_wait(policy):
        case["queued"] = f"{max(0.0, reducible.now - info.created):.3f}s"
    case["expect"] = {"waits": verdict.waits} if is_short and verdict.waits else _expected(reducible, verdict)
    document["cases"] = [case]
    return document


def _reads_wait(policy: Policy) -> bool:
    """Return whether a decision may depend on how long the pod has waited."""
    queues = policy.profile.queues
    patient = queues is not None and any(rule.after_seconds for rule in queues.reclaims)
    return patient or bool(fields([policy]) & {"pod.queued", "pod.waiting"})


def _counted(forms: Sequence[Json]) -> list[Json]:
    """Return the forms with equal ones, but for their names, written once with how many there are."""
    groups: dict[str, list[Json]] = {}
    for form in forms:
        rest = {key: value for key, value in form.items() if key != "name"}
        groups.setdefault(repr(rest), []).append(form)
    return [group[0] if len(group) == 1 else {**group[0], "count": len(group)} for group in groups.values()]


def _expected(reducible: ReducibleInputs, verdict: DecisionSummary) -> Mapping[str, Any]:
    if verdict.held is not None:
        return {"held": verdict.held}
    expect: Json = {}
    inputs = reducible.inputs()
    if verdict.domain is not None:
        return {"unschedulable": {"message": answer(inputs).text}}
    made = inputs.evaluate()
    if verdict.waits:
        expect["waits"] = verdict.waits
    if verdict.host is not None:
        expect["node"] = verdict.host
        if verdict.devices:
            expect["devices"] = list(verdict.devices)
        if verdict.next is not None and not verdict.tied:
            expect["margin"] = _margin(verdict.margin or 0.0)
    else:
        expect["unschedulable"] = {"clause": verdict.cause} if verdict.cause else {"message": "/./"}
        if verdict.evicted:
            expect["evicts"] = sorted(name.partition("/")[2] for name in verdict.evicted[1:])
    names = inputs.cluster.nodes.names
    rejected = [(name, made.diagnosis.status(row)) for row, name in enumerate(names)]
    rejected = [(name, status) for name, status in rejected if status.plugin and not made.diagnosis.rejection]
    if 0 < len(rejected) <= _MOST_FILTERED:
        expect["filtered"] = {name: {"clause": status.plugin} for name, status in sorted(rejected)}
    return expect


def _margin(value: float) -> Any:
    """Return the margin with a tolerance for how numbers are added up."""
    return f"{value:.4f}".rstrip("0").rstrip(".") + " ± 0.001"
