"""`policy-scheduler fleet`: decides over clusters for an engine such as Karmada. It schedules no pods."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, get_args

import click

from kube_policy_scheduler.adapters.files.output_file import OutputError, write_file
from kube_policy_scheduler.adapters.files.rotating_file import FileError
from kube_policy_scheduler.adapters.http.port import ServerError
from kube_policy_scheduler.adapters.kube.errors import CredentialsError
from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.adapters.tls.serving_certificate import CertificateError
from kube_policy_scheduler.daemon import logs
from kube_policy_scheduler.daemon.configuration.flags import Flags, override
from kube_policy_scheduler.daemon.configuration.settings import FleetEngine, PolicySettings, Settings, load_settings
from kube_policy_scheduler.daemon.ending import end_on_signals
from kube_policy_scheduler.documents.yaml_document import DocumentError

logger = logging.getLogger(__name__)

EPILOG = """
\b
Examples:
  policy-scheduler fleet --kubeconfig karmada-apiserver.config      # decide what asks for `policy-scheduler`
  policy-scheduler fleet --policies ./policies                      # by `for workloads where …`
  policy-scheduler fleet --policies ./policies --shadow            # write nothing: compare with karmada-scheduler
  policy-scheduler fleet --for multikueue --policies ./policies     # nominate worker clusters of Kueue
  policy-scheduler fleet --for ocm --policies ./policies            # managed clusters of OCM
  policy-scheduler fleet --for clusterprofile --policies ./policies # choose among ClusterProfiles
  policy-scheduler fleet --config /etc/policy-scheduler/config.yaml # as the manifests in deploy/fleet do

\b
In a PropagationPolicy, `spec.schedulerName: policy-scheduler` asks for this scheduler; all others stay with
karmada-scheduler. In the configuration of Kueue, `multiKueue.dispatcherName: policy-scheduler.dev/fleet` leaves the
nominations to `--for multikueue`. See deploy/FLEET.md.

\b
Exit codes: 0 stopped by SIGTERM, SIGHUP or Ctrl-C; 1 the lease was lost, an error occurred, or a second signal
arrived; 2 a wrong flag, configuration or kubeconfig.
"""


@click.command(epilog=EPILOG, short_help="Decide over clusters, for Karmada, MultiKueue or OCM.")
@click.option("--config", type=click.Path(path_type=Path), help="Configuration file (YAML).")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Kubeconfig of the API server of the engine. Default: as kubectl, or the service account.",
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option(
    "--for",
    "engine",
    type=click.Choice(get_args(FleetEngine)),
    help="Engine whose objects to decide. Default: karmada.",
)
@click.option("--policies", type=click.Path(path_type=Path), help="Directory of .policy files, or one file.")
@click.option("--prometheus-url", help="Prometheus for promql(…), such as http://prometheus:9090.")
@click.option("--scheduler-name", multiple=True, help="spec.schedulerName of the bindings to decide; may be repeated.")
@click.option("--http-address", metavar="HOST:PORT", help="Address of probes and metrics; port 0 selects a free port.")
@click.option("--http-address-file", type=click.Path(path_type=Path), help="Write the actual HOST:PORT to this file.")
@click.option(
    "--shadow",
    "mode",
    flag_value="shadow",
    help="Write nothing: decide what another scheduler decides, and report how the two compare.",
)
@click.option("--leader-election/--no-leader-election", default=None, help="Elect a leader; only the leader decides.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Default: text.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Default: info.")
@click.pass_obj
def fleet(
    given: Callable[[Settings], Settings], /, config: Path | None, http_address_file: Path | None, **flags: Any
) -> None:
    """Decide in which clusters workloads run; an engine such as Karmada carries it out.

    With Karmada, the command decides the bindings that name this scheduler in spec.schedulerName, and writes the result
    as karmada-scheduler does. What the policies leave open, the placement of the binding decides.

    With MultiKueue, it nominates worker clusters, the best first, for Workloads that have their quota.

    With Open Cluster Management (`--for ocm`), each policy gives a score of managed clusters that Placements can name,
    and Placements that ask for it get their clusters by the policies.

    With a cluster inventory (`--for clusterprofile`), each policy chooses among the ClusterProfiles, and its choice is
    written as a PlacementDecision with its name.
    """
    ignored: list[str] = []
    try:
        settings = load_settings(config, ignored=ignored) if config is not None else Settings()
    except DocumentError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    settings = override(given(settings), Flags(**flags))
    if settings.policies.path != PolicySettings().path and not settings.policies.path.exists():
        click.echo(f"policy-scheduler fleet: {settings.policies.path} does not exist", err=True)
        sys.exit(2)
    logs.configure(settings.log)
    logs.warn_of_ignored(ignored)
    from kube_policy_scheduler.daemon.fleet.supported import UnsupportedModeError

    try:
        sys.exit(asyncio.run(_run(settings, http_address_file)))
    except (
        CertificateError,
        CredentialsError,
        FileError,
        OutputError,
        ServerError,
        UnsupportedModeError,
    ) as error:
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
    from kube_policy_scheduler.builtins.environment import install_extensions
    from kube_policy_scheduler.daemon.fleet.fleet_daemon import FleetDaemon
    from kube_policy_scheduler.daemon.fleet.supported import engine_kind
    from kube_policy_scheduler.daemon.policies.policy_checker import PolicyChecker
    from kube_policy_scheduler.daemon.watching.api_server import ApiServer

    def announce(url: str) -> None:
        logger.info("serving probes and metrics", extra={"url": url})
        if address_file is not None:
            write_file(address_file, [url.partition("://")[2] + "\n"])

    random, loops, kind = Random(), Loops(), engine_kind(settings)
    async with contextlib.AsyncExitStack() as stack:
        api_server = ApiServer(settings, random=random, loops=loops, resources=kind.resources)
        await stack.enter_async_context(api_server)
        checker: PolicyChecker | None = None
        if settings.policies.path.exists():
            checker = PolicyChecker(extensions=settings.policies.extensions)
            stack.callback(checker.stop)
            install_extensions(settings.policies.extensions, stopwatch=time.perf_counter)
        else:
            logger.info("there are no policies: only what users request applies")
        daemon = FleetDaemon(settings, api_server, kind, checker=checker, random=random, loops=loops)
        return await daemon.run(announce=announce)
