"""`policyctl completion`: a script that teaches a shell to complete policyctl's commands and options."""

from __future__ import annotations

import click

from kube_policy_scheduler.cli.sections import Section

EPILOG = """
\b
Examples:
  source <(policyctl completion bash)                                   # this shell
  policyctl completion zsh > "${fpath[1]}/_policyctl"                   # every zsh
  policyctl completion fish > ~/.config/fish/completions/policyctl.fish
"""


SECTION = Section.SET_UP


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> int:
    """Print a completion script for a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root()
    # source_template and source_vars rather than source(): that starts the shell to ask for its version
    script = kind(root.command, {}, "policyctl", "_POLICYCTL_COMPLETE")
    # click's script for fish splits at every comma, so a description would end at its first one
    template = script.source_template.replace('string split ","', 'string split --max 1 ","')
    click.echo(template % script.source_vars())
    return 0
