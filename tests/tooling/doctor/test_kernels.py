"""Doctor tells of compiled kernels where they would help."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from kube_policy_scheduler.tooling.doctor.kernels import KernelSupport, kernel_findings
from tests.framework.clusters import make_node
from tests.simulation.chaos import policies_of

ADVICE = "with 2 nodes, use an image built with `--build-arg EXTRAS=fast`; decisions are the same"


@pytest.mark.parametrize(
    ("support", "expected"),
    [
        (KernelSupport("0.62.1", "", 3), None),
        (KernelSupport("0.62.1", "", 2), (Status.OK, "numba 0.62.1 is installed here", "")),
        (KernelSupport("", "numba is not installed", 2), (Status.OK, "here: numba is not installed", ADVICE)),
        (KernelSupport("0.1", "numba 0.1 is too old", 2), (Status.WARNING, "here: numba 0.1 is too old", ADVICE)),
        (None, None),
    ],
)
def test_large_clusters_hear_of_compiled_kernels(
    support: KernelSupport | None, expected: tuple[Status, str, str] | None
) -> None:
    state = cluster_state([make_node("a"), make_node("b")])
    inspection = Inspection(state, policies_of("filter node.ready").policy_set, 0.0)

    found = list(kernel_findings(inspection, support))

    wanted = [] if expected is None else [Finding("speed", "compiled kernels", *expected[:2], advice=expected[2])]
    assert found == wanted
