"""The command `policy-scheduler`: settings from file and flags, signals, exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import time
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click

from kube_policy_scheduler.adapters.files.output_file import OutputError, write_file
from kube_policy_scheduler.adapters.process.garbage_collector import short_collections
from kube_policy_scheduler.adapters.process.turn_watch import TurnWatch
from kube_policy_scheduler.adapters.process.worker_thread import WorkerThread
from kube_policy_scheduler.daemon import logs
from kube_policy_scheduler.daemon.configuration.flags import Flags, override
from kube_policy_scheduler.daemon.configuration.settings import Settings, load_settings
from kube_policy_scheduler.daemon.ending import end_on_signals, end_process
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.wording import listed

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.process.loops import Loops
    from kube_policy_scheduler.daemon.policies.policy_checker import PolicyChecker
    from kube_policy_scheduler.daemon.watching.api_server import ApiServer
    from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod

logger = logging.getLogger(__name__)
DISTRIBUTION = "kube-policy-scheduler"
IMPORTED_MEANWHILE = "kube_policy_scheduler.daemon.daemon"
"""What decides, with all that it rests on. In a thread: each page of the first lists is read as soon as it comes, and
the next one asked for."""
IMPORTED_FIRST = "kube_policy_scheduler.daemon.policies.checker_process"
"""A part of it, which the process that checks policies needs, too: it begins as a copy of ours."""

EPILOG = """
\b
Examples:
  policy-scheduler --policies ./policies                       # your current kubectl context
  policy-scheduler --config /etc/policy-scheduler/config.yaml  # as the manifests in deploy/ do
  policy-scheduler --policies ./policies --prometheus-url http://localhost:9090
  policy-scheduler --policies ./policies --shadow              # report what it would do with kube-scheduler's pods
  policy-scheduler config --print-defaults > config.yaml       # every setting with its meaning
  policy-scheduler config config.yaml                          # check the file and print the active settings

\b
Exit codes: 0 stopped by SIGTERM, SIGHUP or Ctrl-C; 1 the lease was lost, the API server was upgraded, an error
occurred, or a second signal arrived; 2 a wrong flag, configuration or kubeconfig.
"""


class _Commands(click.Group):
    """Imports a subcommand when it is asked for: a start needs none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["config", "fleet", "webhook"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in (known := self.list_commands(ctx)):
            ctx.fail(f"unknown command `{cmd_name}`: there are {listed(known)}")
        found: click.Command = getattr(import_module(f"kube_policy_scheduler.daemon.commands.{cmd_name}"), cmd_name)
        return found


@click.group(
    cls=_Commands,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name=DISTRIBUTION)
@click.option("--config", type=click.Path(path_type=Path), help="Configuration file (YAML).")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Path of the kubeconfig. Default: as kubectl, or the service account.",
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--policies", type=click.Path(path_type=Path), help="Directory of .policy files, or one file.")
@click.option("--prometheus-url", help="Prometheus for promql(…), such as http://prometheus:9090.")
@click.option("--scheduler-name", multiple=True, help="spec.schedulerName to serve; may be repeated.")
@click.option("--http-address", metavar="HOST:PORT", help="Address of probes and metrics; port 0 selects a free port.")
@click.option(
    "--http-secure/--http-plain",
    default=None,
    help="--http-secure: HTTPS, and tokens for everything except probes, as on kube-scheduler's port; the"
    " scheduler creates a certificate if the configuration names none. --http-plain: HTTP, for everybody who"
    " can connect. Default: secure, unless only this machine can connect.",
)
@click.option("--http-address-file", type=click.Path(path_type=Path), help="Write the actual HOST:PORT to this file.")
@click.option("--leader-election/--no-leader-election", default=None, help="Elect a leader; only the leader schedules.")
@click.option(
    "--sharding/--no-sharding", default=None, help="Let replicas share the work instead of electing a leader."
)
@click.option(
    "--mode",
    type=click.Choice(["scheduler", "shadow", "extender", "estimator"]),
    help="scheduler (default): place pods. shadow: decide the pods of another scheduler, and report differences."
    " extender: answer kube-scheduler. estimator: tell Karmada how many more replicas fit.",
)
@click.option("--shadow", "mode", flag_value="shadow", help="Same as --mode shadow: bind nothing, write nothing.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Default: text.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Default: info.")
@click.pass_context
def main(ctx: click.Context, /, config: Path | None, http_address_file: Path | None, **flags: Any) -> None:
    """Schedule pods by policies."""
    if ctx.invoked_subcommand is not None:
        gc.enable()  # see `__main__`
        ctx.obj = partial(override, flags=Flags(**flags))  # flags before a subcommand count there too
        if config is not None or http_address_file is not None:
            raise click.UsageError(f"--config and --http-address-file are not for `{ctx.invoked_subcommand}`")
        return
    ignored: list[str] = []
    try:
        settings = load_settings(config, ignored=ignored) if config is not None else Settings()
    except DocumentError as error:
        sys.exit(_fail(str(error)))
    settings = override(settings, Flags(**flags))
    if flags["policies"] is not None and not flags["policies"].exists():
        sys.exit(_fail(f"Error: {flags['policies']} does not exist"))
    logs.configure(settings.log)
    logs.warn_of_ignored(ignored)
    turns: TurnWatch[QueuedPod] = TurnWatch()
    with turns, asyncio.Runner(loop_factory=turns.new_loop) as runner:
        code = runner.run(_run(settings, http_address_file, turns))
    end_process(code)


async def _run(settings: Settings, address_file: Path | None, turns: TurnWatch[QueuedPod]) -> int:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy comes: its threads take 40 ms, and help nothing
    gc.disable()  # until the first lists are in: it finds nothing in modules and objects that come to stay
    running = asyncio.create_task(_schedule(settings, address_file, turns))
    end_on_signals(running.cancel, what="finishing bindings and events")
    try:
        with short_collections():
            return await running
    except asyncio.CancelledError:
        logger.info("shut down cleanly")
        return 0


async def _schedule(settings: Settings, address_file: Path | None, turns: TurnWatch[QueuedPod]) -> int:
    """Ask the API server for what there is, import what decides while it answers, then do it."""
    from kube_policy_scheduler.adapters.kube.errors import CredentialsError
    from kube_policy_scheduler.adapters.process.loops import Loops
    from kube_policy_scheduler.daemon.watching.api_server import ApiServer

    random, loops = Random(), Loops()
    try:
        async with contextlib.AsyncExitStack() as stack:
            api_server = await stack.enter_async_context(ApiServer(settings, random=random, loops=loops))
            checker = await begin_checker(settings)
            stack.callback(checker.stop)
            await asyncio.to_thread(import_module, IMPORTED_MEANWHILE)
            return await _decide(
                settings, api_server, address_file, checker=checker, random=random, loops=loops, turns=turns
            )
    except CredentialsError as error:
        return _fail(f"policy-scheduler: {error}")


async def begin_checker(settings: Settings) -> PolicyChecker:
    """Return what checks policies; its process has begun, and goes on on another core.

    What it needs is imported in a thread that has ended when the process begins as a copy of ours.
    """
    importing = WorkerThread("imports")
    try:
        imported = await importing.call(partial(import_module, IMPORTED_FIRST))
    finally:
        importing.stop()
        importing.join()
    from kube_policy_scheduler.adapters.process.worker_process import WorkerLost
    from kube_policy_scheduler.daemon.policies.policy_checker import PolicyChecker

    checker = PolicyChecker(extensions=settings.policies.extensions)
    with contextlib.suppress(WorkerLost):  # it is tried again, and reported, when there is something to check
        checker.start(imported.prepare)
    return checker


async def _decide(
    settings: Settings,
    api_server: ApiServer,
    address_file: Path | None,
    *,
    checker: PolicyChecker,
    random: Random,
    loops: Loops,
    turns: TurnWatch[QueuedPod],
) -> int:
    from kube_policy_scheduler.adapters.files.rotating_file import FileError
    from kube_policy_scheduler.adapters.http.extender_error import ExtenderError
    from kube_policy_scheduler.adapters.http.port import ServerError
    from kube_policy_scheduler.adapters.open_telemetry import TracingUnavailable
    from kube_policy_scheduler.adapters.tls.serving_certificate import CertificateError
    from kube_policy_scheduler.builtins.environment import install_extensions
    from kube_policy_scheduler.builtins.extensions import ExtensionError
    from kube_policy_scheduler.daemon.daemon import Daemon

    try:
        await api_server.version.first()
        install_extensions(settings.policies.extensions, stopwatch=time.perf_counter)
        daemon = Daemon(
            settings, api_server, checker=checker, version=_version, random=random, loops=loops, turns=turns
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, daemon.print_state)
        return await daemon.run(announce=lambda url: _announce(url, address_file))
    except (
        CertificateError, ExtenderError, ExtensionError, FileError, OutputError, ServerError, TracingUnavailable
    ) as error:  # fmt: skip
        return _fail(f"policy-scheduler: {error}")


@cache
def _version() -> str:
    from importlib.metadata import version  # 30 ms with what it needs

    return version(DISTRIBUTION)


def _announce(url: str, address_file: Path | None) -> None:
    logger.info("serving probes and metrics", extra={"url": url})
    if address_file is not None:
        write_file(address_file, [url.partition("://")[2] + "\n"])  # whole at once: others wait for it


def _fail(text: str) -> int:
    click.echo(text, err=True)
    return 2
