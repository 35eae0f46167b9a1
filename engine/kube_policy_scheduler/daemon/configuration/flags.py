"""What the command line says of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from kube_policy_scheduler.daemon.configuration.addresses import host_and_port, url
from kube_policy_scheduler.daemon.configuration.settings import FleetEngine, PrometheusSettings, Settings, TlsSettings


class Flags(msgspec.Struct, frozen=True):
    """What the command line says of the settings; None: nothing."""

    kubeconfig: Path | None = None
    context: str | None = None
    policies: Path | None = None
    prometheus_url: str | None = None
    scheduler_name: tuple[str, ...] = ()
    http_address: str | None = None
    http_secure: bool | None = None
    leader_election: bool | None = None
    sharding: bool | None = None
    mode: Literal["scheduler", "shadow", "extender", "estimator"] | None = None
    engine: FleetEngine | None = None
    log_format: Literal["text", "json"] | None = None
    log_level: Literal["debug", "info", "warning", "error"] | None = None


def override(settings: Settings, flags: Flags) -> Settings:
    """Return the settings with what the command line says."""
    changes: dict[str, Any] = {}
    if flags.kubeconfig is not None or flags.context is not None:
        changes["kubernetes"] = replace(
            settings.kubernetes,
            kubeconfig=flags.kubeconfig or settings.kubernetes.kubeconfig,
            context=flags.context or settings.kubernetes.context,
        )
    if flags.policies is not None:
        changes["policies"] = replace(settings.policies, path=flags.policies)
    if flags.prometheus_url is not None:
        address = url(flags.prometheus_url, hint="--prometheus-url")
        before = settings.prometheus
        changes["prometheus"] = replace(before, url=address) if before else PrometheusSettings(url=address)
    if flags.scheduler_name:
        changes["scheduler_names"] = flags.scheduler_name
    http = settings.http
    if flags.http_address is not None:
        host, port = host_and_port(flags.http_address, hint="--http-address")
        http = replace(http, host=host, port=port)
    if flags.http_secure:
        http = replace(http, tls=http.tls or TlsSettings(), authentication="kubernetes")
    elif flags.http_secure is False:
        http = replace(http, tls=None, authentication="none")
    changes["http"] = http
    if flags.leader_election is not None:
        changes["leader_election"] = replace(settings.leader_election, enabled=flags.leader_election)
    if flags.sharding is not None:
        changes["sharding"] = replace(settings.sharding, enabled=flags.sharding)
    if flags.mode is not None:
        changes["mode"] = flags.mode
    if flags.engine is not None:
        changes["fleet"] = replace(settings.fleet, engine=flags.engine)
    log = settings.log
    changes["log"] = replace(log, format=flags.log_format or log.format, level=flags.log_level or log.level)
    return replace(settings, **changes)
