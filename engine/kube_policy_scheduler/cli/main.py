"""The command line: finds the subcommand, runs it, and turns every end into an exit code.

0 all is well · 1 something was found · 2 it could not run · 130 Ctrl-C · 141 the reader of the output has gone.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from kube_policy_scheduler.cli import commands
from kube_policy_scheduler.cli.files import rendered
from kube_policy_scheduler.cli.sections import Section, SentenceGroup
from kube_policy_scheduler.cli.terminal import say
from kube_policy_scheduler.diagnostics import closest

PROGRAM = "policyctl"
PLUGIN = "kubectl-policy"
"""The same program by the name at which kubectl finds it as `kubectl policy`."""
OK, FOUND, COULD_NOT_RUN = 0, 1, 2
_INTERRUPTED = 128 + signal.SIGINT
_PIPE_CLOSED = 128 + signal.SIGPIPE
_COMPLETE = "_POLICYCTL_COMPLETE"
"""Set by the script of `policyctl completion` when the shell asks what could come next."""

_OBJECTS_BEFORE_COLLECTION = 100_000
"""A command builds a cluster and ends: looking for cycles after each 700 objects costs it a quarter of its time."""

EPILOG = """
\b
Examples:
  policyctl lint policies/              # every .policy file below a folder
  policyctl lint - < draft.policy       # standard input
  policyctl test policies/              # every .test.yaml file below a folder

\b
Exit codes: 0 no problem; 1 a problem was found; 2 the command could not run.
"""


class Commands(SentenceGroup):
    """Finds subcommands in `cli.commands`; nothing registers itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all subcommands, in order."""
        return sorted(_modules())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand by name, importing its module alone."""
        module = _modules().get(cmd_name)
        if module is None:
            return None
        found: click.Command = import_module(f"{commands.__name__}.{module}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their sections."""
        of = {name: import_module(f"{commands.__name__}.{module}").SECTION for name, module in _modules().items()}
        for section in Section:
            self.write_list(ctx, formatter, section.value, sorted(name for name in of if of[name] is section))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that the arguments begin with."""
        name = args[0]
        if not name.startswith("-") and name not in (known := self.list_commands(ctx)):
            meant = closest(name, known)
            advice = f"did you mean `{meant}`?" if meant else f"commands: {', '.join(known)}"
            ctx.fail(f"unknown command `{name}`: {advice}")
        return super().resolve_command(ctx, args)


def _modules() -> dict[str, str]:
    """Return the module of each subcommand; one that is named like a keyword of Python ends with `_`."""
    names = (module.name for module in pkgutil.iter_modules(commands.__path__))
    return {name.rstrip("_").replace("_", "-"): name for name in names}


@click.command(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="kube-policy-scheduler")
def policyctl() -> None:
    """Check, test and explain scheduling policies."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy comes: its threads take 40 ms, and help nothing
    logging.getLogger("kube_policy_scheduler").addHandler(
        logging.NullHandler()
    )  # what goes wrong is said once, by the command
    try:
        code = _invoke(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue(), err=True, nl=False)
        return COULD_NOT_RUN
    except (KeyboardInterrupt, click.Abort):
        say(err=True)
        return _INTERRUPTED
    except BrokenPipeError:
        # what is still buffered has no reader either: without this Python complains at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except Exception as error:
        from kube_policy_scheduler.builtins.extensions import ExtensionFault  # most commands end without one
        from kube_policy_scheduler.documents.yaml_document import DocumentError

        if isinstance(error, DocumentError):
            say(rendered(error.diagnostics, err=True), err=True)
            return COULD_NOT_RUN
        if isinstance(error, ExtensionFault):
            say(f"Error: {error}", err=True)
            return COULD_NOT_RUN
        say(traceback.format_exc(), err=True, nl=False)
        say("policyctl: this is a bug in policyctl: please report it with the text above", err=True)
        return COULD_NOT_RUN


def _program() -> str:
    """Return how this program was called, for usage texts."""
    return PLUGIN.replace("-", " ") if Path(sys.argv[0]).stem == PLUGIN else PROGRAM


def _invoke(arguments: list[str]) -> int:
    if _COMPLETE in os.environ:
        policyctl.main(arguments, prog_name=PROGRAM, complete_var=_COMPLETE)
    try:
        # not `policyctl.main(…)`: that ends the process itself when the reader of the output goes away
        with policyctl.make_context(_program(), arguments) as context:
            code: Any = policyctl.invoke(context)
    except click.exceptions.Exit as end:
        code = end.exit_code
    return code if isinstance(code, int) else OK
