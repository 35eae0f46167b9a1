"""What doctor says about HTTP extenders."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.documents.extender_settings import ExtenderTls, HttpExtenderSettings
from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.doctor import extenders
from kube_policy_scheduler.tooling.doctor.extenders import ExtenderAnswer, extender_findings
from kube_policy_scheduler.tooling.doctor.findings import Inspection, Status
from tests.framework.clusters import make_node
from tests.simulation.chaos import policies_of

CACHE = HttpExtenderSettings(url_prefix="https://x", filter_verb="filter", node_cache_capable=True)
WHOLE = HttpExtenderSettings(url_prefix="http://x", filter_verb="filter")
LOOSE = HttpExtenderSettings(url_prefix="https://x", enable_HTTPS=True, node_cache_capable=True)
STRICT = HttpExtenderSettings(
    url_prefix="https://x", enable_HTTPS=True, node_cache_capable=True, tls_config=ExtenderTls(ca_data="x")
)
IGNORABLE = HttpExtenderSettings(url_prefix="http://x", node_cache_capable=True, ignorable=True)


@pytest.mark.parametrize(
    ("settings", "answer", "expected"),
    [
        (CACHE, ("", 0.1, ()), [(Status.OK, "answers")]),
        (STRICT, ("", 0.1, ()), [(Status.OK, "answers")]),
        (
            CACHE,
            ("connection refused", 0.0, ()),
            [(Status.PROBLEM, "connection refused; pods that it is asked about wait")],
        ),
        (
            IGNORABLE,
            ("connection refused", 0.0, ()),
            [(Status.WARNING, "connection refused; it is ignorable, so pods are placed without it")],
        ),
        (CACHE, ("", 4.0, ()), [(Status.WARNING, "takes 4.0 s of the 5 s that it has")]),
        (CACHE, ("", 0.1, ("filter", "bind")), [(Status.WARNING, "answers HTTP 404 for filter and bind")]),
        (
            WHOLE,
            ("", 0.1, ()),
            [
                (Status.OK, "answers"),
                (Status.WARNING, "it receives whole Node objects, and the cluster has 2 nodes"),
            ],
        ),
        (LOOSE, ("", 0.1, ()), [(Status.OK, "answers"), (Status.WARNING, "every certificate is accepted")]),
    ],
)
def test_findings(
    settings: HttpExtenderSettings,
    answer: tuple[str, float, tuple[str, ...]],
    expected: list[tuple[Status, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extenders, "MANY_NODES", 2)
    inspection = Inspection(
        cluster_state([make_node("a"), make_node("b")]), policies_of("filter node.ready").policy_set, 0.0
    )
    found = extender_findings(inspection, [ExtenderAnswer(settings, "x", *answer)])
    assert [(each.status, each.text) for each in found] == expected
