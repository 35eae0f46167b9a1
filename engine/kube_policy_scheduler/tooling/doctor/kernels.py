"""Whether compiled kernels would help, and whether they are available where the examination runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from kube_policy_scheduler.wording import plural


@dataclass(frozen=True, slots=True)
class KernelSupport:
    """What this installation has for compiled kernels."""

    version: str
    """Of numba; "" if it is not installed."""
    problem: str
    """Why it cannot be used, "" if it can."""
    from_nodes: int
    """The number of nodes from which on the scheduler uses it."""


def kernel_findings(inspection: Inspection, support: KernelSupport | None) -> Iterator[Finding]:
    """Say whether compiled kernels are available, if the cluster is large enough for them."""
    nodes = inspection.state.cluster.nodes.size
    if support is None or nodes < support.from_nodes:
        return
    if not support.problem:
        text = f"numba {support.version} is installed here"
        yield Finding("speed", "compiled kernels", Status.OK, text)
        return
    advice = f"with {plural(nodes, 'node')}, use an image built with `--build-arg EXTRAS=fast`; decisions are the same"
    status = Status.WARNING if support.version else Status.OK
    yield Finding("speed", "compiled kernels", status, f"here: {support.problem}", advice=advice)
