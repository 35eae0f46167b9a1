"""`policyctl version`: the version, and what the scheduler of the same installation can use."""

from __future__ import annotations

import platform

import click

from kube_policy_scheduler.cli.terminal import format_option, say_json, say_lines

EPILOG = """
\b
Examples:
  policyctl version
  policyctl version --format json | jq .compiledKernels
  kubectl -n policy-scheduler exec deployment/policy-scheduler -- policyctl version

\b
Exit codes: 0 success.
"""


@click.command(epilog=EPILOG)
@format_option()
def command(form: str) -> int:
    """Show the version, and whether compiled kernels are available.

    Compiled kernels need the extra `fast` (numba). They make decisions faster in clusters of thousands of nodes;
    decisions are the same without them.
    """
    from importlib.metadata import version

    from kube_policy_scheduler.adapters.compiled_kernels import find_numba

    ours, numpy, numba = version("kube-policy-scheduler"), version("numpy"), find_numba()
    if form == "json":
        kernels = {"usable": not numba.problem, "numba": numba.version or None, "problem": numba.problem or None}
        say_json({"version": ours, "python": platform.python_version(), "numpy": numpy, "compiledKernels": kernels})
    else:
        say_lines(
            (
                f"policyctl {ours}",
                f"Python {platform.python_version()}, NumPy {numpy}",
                f"compiled kernels: {numba.text}",
            )
        )
    return 0
