"""What people read of a pod that a policy rejects or holds: policy and clause, once, and nothing that says nothing."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod
from tests.daemon.deciding_stage import Stage, policies

NONE_TO_EVICT = "preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod."
REJECTIONS = {
    "require with a text": (
        'require pod.label.tenant else "pod missing tenant label"',
        "pod missing tenant label. Rejected by policy web, clause `pod.label.tenant`.",
    ),
    "require that has a name": (
        'require pod.label.tenant as has-tenant else "pod missing tenant label"',
        "pod missing tenant label. Rejected by policy web, clause `has-tenant`.",
    ),
    "require without a text": (
        "require pod.label.tenant",
        "pod is rejected by policy clause pod.label.tenant. Rejected by policy web.",
    ),
    "filter without a text": (
        'filter node.label.zone == "z9"',
        '4 node(s) didn\'t match policy clause node.label.zone == "z9". Rejected by policy web.',
    ),
    "filter of two parts": (
        'filter node.label.zone == "z9" and node.label.rack',
        "4 node(s) didn't match policy clause node.label.rack,"
        ' 4 node(s) didn\'t match policy clause node.label.zone == "z9". Rejected by policy web.',
    ),
    "filter with a text": (
        'filter node.label.zone == "z9" else "not in z9"',
        '4 not in z9. Rejected by policy web, clause `node.label.zone == "z9"`.',
    ),
    "two filters with texts": (
        'filter node.label.zone == "z0" as zone else "not in z0"\n'
        'filter not (node.name in ["n0", "n2"]) as name else "no"',
        "2 no, 2 not in z0. Rejected by policy web, clauses `zone`, `name`.",
    ),
    "limit": (
        'limit count() by pod.label.tenant to 0 as quota else "no quota left"',
        f"no quota left. Rejected by policy web, clause `quota`. {NONE_TO_EVICT}",
    ),
}


@pytest.mark.parametrize("name", REJECTIONS)
def test_a_rejection_names_policy_and_clause_once(name: str) -> None:
    text, message = REJECTIONS[name]
    stage = Stage(policies(f"policy web\n{text}\n"))
    assert stage.decide(stage.pod()).message == f"0/4 nodes are available: {message}"


def test_rejections_by_kubernetes_have_only_kube_schedulers_words() -> None:
    stage = Stage(policies('policy web\nfilter node.name != "n9"\n'))
    assert stage.decide(stage.pod(cpu="64")).message == (
        "0/4 nodes are available: 4 Insufficient cpu. no new claims to deallocate,"
        " preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    )


def test_the_message_of_a_pod_that_both_reject_says_whether_preemption_was_tried() -> None:
    stage = Stage(policies('policy web\nfilter node.label.zone == "z0" as z0 else "not in z0"\n'), cpus=2)
    for _ in range(2):
        stage.decide(stage.pod(cpu="2"))
    assert stage.decide(stage.pod(cpu="2")).message == (
        "0/4 nodes are available: 2 Insufficient cpu, 2 not in z0. Rejected by policy web, clause `z0`."
        " preemption: 0/4 nodes are available: 2 No preemption victims found for incoming pod,"
        " 2 Preemption is not helpful for scheduling."
    )


@pytest.mark.parametrize(
    ("clause", "why"),
    [
        ('hold if pod.label.later else "not today"', "not today. Held by policy web, clause `pod.label.later`."),
        ('hold if pod.label.later as later else "not today"', "not today. Held by policy web, clause `later`."),
        ("hold if pod.label.later", "pod is held by policy clause pod.label.later. Held by policy web."),
    ],
)
def test_a_pod_that_is_held_names_policy_and_clause_once(clause: str, why: str) -> None:
    stage = Stage(policies(f"policy web\n{clause}\n"))
    live = LivePolicies(stage.policy_set, scheduler_names=frozenset({"policy-scheduler"}))
    queued = QueuedPod(stage.pod(later="1"), queued=0.0, timestamp=0.0)

    def frame(_: QueuedPod) -> Frame:
        return Frame(queued.pod, stage.cluster, stage.now)

    assert live.hold(queued, frame) == why
