"""`policyctl version`: the version, and what the scheduler of the same installation can use."""

from __future__ import annotations

import platform

import click

from kube_policy_scheduler.cli.sections import Section
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


SECTION = Section.SET_UP


@click.command(epilog=EPILOG)
@format_option()
def command(form: str) -> int:
    """Show the version, whether compiled kernels are available, and which extras are installed.

    Compiled kernels need the extra `fast` (numba). They make decisions faster in clusters of thousands of nodes;
    decisions are the same without them. For each extra that is missing, you get the command that adds it.
    """
    from importlib.metadata import version

    from kube_policy_scheduler.adapters.compute.compiled_kernels import find_numba
    from kube_policy_scheduler.installation import command_for, extras

    ours, numpy, numba = version("kube-policy-scheduler"), version("numpy"), find_numba()
    found = extras()
    missing = [name for name, installed in found.items() if not installed]
    if form == "json":
        kernels = {"usable": not numba.problem, "numba": numba.version or None, "problem": numba.problem or None}
        say_json(
            {
                "version": ours,
                "python": platform.python_version(),
                "numpy": numpy,
                "compiledKernels": kernels,
                "extras": found,
            }
        )
    else:
        say_lines(
            (
                f"policyctl {ours}",
                f"Python {platform.python_version()}, NumPy {numpy}",
                f"compiled kernels: {numba.text}",
                f"extras: {', '.join(name for name, installed in found.items() if installed) or 'none'}",
                *(f"to add {name}: {command_for(name)}" for name in missing),
            )
        )
    return 0
