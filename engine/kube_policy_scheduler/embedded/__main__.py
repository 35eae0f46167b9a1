"""`python -m kube_policy_scheduler.embedded`: an embedded cluster as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from kube_policy_scheduler.embedded import (
    ControllerSettings,
    EmbeddedCluster,
    KubeletSettings,
    ServerSettings,
)
from kube_policy_scheduler.embedded.resources import DEFAULT_VERSION
from kube_policy_scheduler.kubernetes_rules import KubernetesVersion, VersionError


def _version(text: str) -> KubernetesVersion:
    try:
        return KubernetesVersion.parse(text)
    except VersionError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kube_policy_scheduler.embedded", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 selects a free port")
    parser.add_argument("--nodes", "--objects", dest="objects", type=Path, action="append", default=[],
                        help="YAML or JSON file with initial objects; may be repeated")  # fmt: skip
    parser.add_argument("--kubeconfig", type=Path, help="where to write a kubeconfig")
    parser.add_argument("--start-seconds", type=float, default=0.0, help="seconds from binding to Running")
    parser.add_argument("--kubernetes", type=_version, default=DEFAULT_VERSION, metavar="VERSION",
                        help=f"version to be of, such as 1.37; {DEFAULT_VERSION} by default")  # fmt: skip
    parser.add_argument("--no-kubelets", action="store_true", help="do not simulate kubelets")
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    cluster = EmbeddedCluster(
        kubernetes=arguments.kubernetes,
        server=ServerSettings(port=arguments.port),
        controllers=None if arguments.no_kubelets else ControllerSettings(),
        kubelets=None if arguments.no_kubelets else KubeletSettings(start_seconds=arguments.start_seconds),
    )
    for path in arguments.objects:
        cluster.load_file(path)
    async with cluster:
        if arguments.kubeconfig is not None:
            cluster.kubeconfig(arguments.kubeconfig)
        sys.stdout.write(f"{cluster.url}\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(_serve(_arguments()))
