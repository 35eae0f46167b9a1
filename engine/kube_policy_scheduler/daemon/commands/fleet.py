"""`policy-scheduler fleet`: decides over the clusters of a Karmada control plane. It schedules no pods."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import click

from kube_policy_scheduler.adapters.files.output_file import OutputError, write_file
from kube_policy_scheduler.adapters.http.port import ServerError
from kube_policy_scheduler.adapters.kube.errors import CredentialsError
from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.adapters.tls.serving_certificate import CertificateError
from kube_policy_scheduler.daemon import logs
from kube_policy_scheduler.daemon.configuration.flags import Flags, override
from kube_policy_scheduler.daemon.configuration.settings import Settings, load_settings
from kube_policy_scheduler.daemon.ending import end_on_signals
from kube_policy_scheduler.documents.yaml_document import DocumentError

logger = logging.getLogger(__name__)

EPILOG = """
\b
Examples:
  policy-scheduler fleet --kubeconfig karmada-apiserver.config      # decide what asks for `policy-scheduler`
  policy-scheduler fleet --config /etc/policy-scheduler/config.yaml # as the manifests in deploy/fleet do

\b
In a PropagationPolicy, `spec.schedulerName: policy-scheduler` asks for this scheduler; all others stay with
karmada-scheduler. See deploy/FLEET.md.

\b
Exit codes: 0 stopped by SIGTERM, SIGHUP or Ctrl-C; 1 the lease was lost, an error occurred, or a second signal
arrived; 2 a wrong flag, configuration or kubeconfig.
"""


@click.command(epilog=EPILOG, short_help="Decide over the clusters of a Karmada control plane.")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="Configuration file (YAML).")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Kubeconfig of the Karmada API server. Default: as kubectl, or the service account.",
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--scheduler-name", multiple=True, help="spec.schedulerName of the bindings to decide; may be repeated.")
@click.option("--http-address", metavar="HOST:PORT", help="Address of probes and metrics; port 0 selects a free port.")
@click.option("--http-address-file", type=click.Path(path_type=Path), help="Write the actual HOST:PORT to this file.")
@click.option("--leader-election/--no-leader-election", default=None, help="Elect a leader; only the leader decides.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Default: text.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Default: info.")
@click.pass_obj
def fleet(
    given: Callable[[Settings], Settings], /, config: Path | None, http_address_file: Path | None, **flags: Any
) -> None:
    """Decide in which clusters of a Karmada control plane workloads run, beside karmada-scheduler.

    The decision maker decides bindings that name it in spec.schedulerName, and writes the result as karmada-scheduler
    does.
    """
    ignored: list[str] = []
    try:
        settings = load_settings(config, ignored=ignored) if config is not None else Settings()
    except DocumentError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    settings = override(given(settings), Flags(**flags))
    logs.configure(settings.log)
    logs.warn_of_ignored(ignored)
    try:
        sys.exit(asyncio.run(_run(settings, http_address_file)))
    except (CertificateError, CredentialsError, OutputError, ServerError) as error:
        click.echo(f"policy-scheduler fleet: {error}", err=True)
        sys.exit(2)


async def _run(settings: Settings, address_file: Path | None) -> int:
    running = asyncio.create_task(_decide(settings, address_file))
    end_on_signals(running.cancel, what="finishing writes and events")
    try:
        return await running
    except asyncio.CancelledError:
        logger.info("shut down cleanly")
        return 0


async def _decide(settings: Settings, address_file: Path | None) -> int:
    from kube_policy_scheduler.daemon.fleet.fleet_daemon import FleetDaemon
    from kube_policy_scheduler.daemon.fleet.resources import FLEET
    from kube_policy_scheduler.daemon.watching.api_server import ApiServer

    def announce(url: str) -> None:
        logger.info("serving probes and metrics", extra={"url": url})
        if address_file is not None:
            write_file(address_file, [url.partition("://")[2] + "\n"])

    random, loops = Random(), Loops()
    async with contextlib.AsyncExitStack() as stack:
        api_server = ApiServer(settings, random=random, loops=loops, resources=FLEET)
        await stack.enter_async_context(api_server)
        daemon = FleetDaemon(settings, api_server, random=random, loops=loops)
        return await daemon.run(announce=announce)
