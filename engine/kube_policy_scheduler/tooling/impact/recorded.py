"""The pods of a decision log as steps of a replay. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kube_policy_scheduler.cluster.pods import Templates
from kube_policy_scheduler.policy.decision_inputs import unbound
from kube_policy_scheduler.tooling.cluster_state import is_of_node
from kube_policy_scheduler.tooling.decision_record import DecisionRecord, Outcome
from kube_policy_scheduler.tooling.governing import Ruleset, governed
from kube_policy_scheduler.tooling.impact.replay import Step

_DECIDED = frozenset(Outcome) - {Outcome.BIND_FAILED, Outcome.FAILED}


def recorded_steps(records: Iterable[DecisionRecord], rulesets: Sequence[Ruleset]) -> list[Step]:
    """Return the last decision about each pod, in the order and at the times at which they were made.

    Pods that no policy of either set governs are left out.
    """
    templates = Templates()
    last: dict[str, DecisionRecord] = {}
    for record in records:
        if record.outcome in _DECIDED:
            last.pop(record.pod.metadata.uid, None)
            last[record.pod.metadata.uid] = record
    steps = []
    for record in sorted(last.values(), key=lambda record: record.time):
        info = templates.pod(record.pod)
        if is_of_node(info) or not governed(info, rulesets):
            continue
        pod = record.pod
        if not pod.metadata.uid:
            pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=record.key))
        was = record.node if record.outcome in (Outcome.ASSIGNED, Outcome.SHADOW) else ""
        steps.append(Step(unbound(pod, keep_status=False), record.time, queued=record.queued or None, was=was))
    return steps
