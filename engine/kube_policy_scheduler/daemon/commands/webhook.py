"""`policy-scheduler webhook`: a server that keeps broken policies out of ConfigMaps. It schedules nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kube_policy_scheduler.adapters.files.output_file import OutputError, write_file
from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.http.port import ServerError
from kube_policy_scheduler.adapters.kube.credentials import own_namespace
from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.adapters.tls.serving_certificate import CertificateError, ServingCertificate
from kube_policy_scheduler.daemon import logs
from kube_policy_scheduler.daemon.configuration.addresses import host_and_port
from kube_policy_scheduler.daemon.configuration.settings import LogSettings, PolicySettings, load_settings
from kube_policy_scheduler.daemon.ending import end_on_signals
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.lang.owner import Owner

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.kube.webhook_certificate import WebhookNames

logger = logging.getLogger(__name__)

EPILOG = """
\b
Examples:
  policy-scheduler webhook --certificate-file tls.crt --key-file tls.key     # from cert-manager, for example
  policy-scheduler webhook --self-managed-certificate                        # creates, stores and renews it

\b
The manifests are in deploy/components/webhook-self-managed and webhook-cert-manager. The webhook reads both files
again when they change.

\b
Exit codes: 0 stopped by SIGTERM, SIGHUP or Ctrl-C; 1 the API server rejects a request for the self-managed
certificate; 2 a wrong flag or certificate.
"""
NAME = "policy-scheduler-webhook"
FIRST_TRY_SECONDS = 60.0
"""For the API server to answer at the start."""


@dataclass(frozen=True, slots=True)
class _Options:
    host: str
    port: int
    address_file: Path | None
    proof: PolicyProof | None
    owners: Mapping[str, Owner] | None
    extensions: Sequence[str]


@click.command(epilog=EPILOG, short_help="Reject ConfigMaps whose policies contain errors.")
@click.option("--address", default="0.0.0.0:8443", show_default=True, metavar="HOST:PORT", help="Address to listen on.")
@click.option("--address-file", type=click.Path(path_type=Path), help="Write the actual HOST:PORT to this file.")
@click.option("--certificate-file", type=click.Path(path_type=Path), help="Certificate in PEM; requires --key-file.")
@click.option("--key-file", type=click.Path(path_type=Path), help="Private key in PEM, without a password.")
@click.option(
    "--self-managed-certificate",
    is_flag=True,
    help="Create a certificate, store it in a Secret, renew it, and let the API server trust it.",
)
@click.option("--namespace", help="Namespace of the Secret and the Service. Default: the namespace of the pod.")
@click.option(
    "--secret",
    default=f"{NAME}-tls",
    show_default=True,
    help="Secret for the certificate. It must exist, and may be empty.",
)
@click.option("--service", default=NAME, show_default=True, help="Service whose names the certificate contains.")
@click.option("--configuration", default=NAME, show_default=True, help="Name of the ValidatingWebhookConfiguration.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration of the scheduler: check the policies of `policies.owners` against what it allows each owner.",
)
@click.option("--checksums", is_flag=True, help="Same as `policies.checksums` of the scheduler's configuration.")
@click.option(
    "--public-key-file",
    type=click.Path(path_type=Path),
    help="Same as `policies.publicKeyFile` of the scheduler's configuration.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Path of the kubeconfig. Default: as kubectl, or the service account.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def webhook(
    address: str,
    address_file: Path | None,
    certificate_file: Path | None,
    key_file: Path | None,
    self_managed_certificate: bool,
    namespace: str | None,
    secret: str,
    service: str,
    configuration: str,
    config: Path | None,
    checksums: bool,
    public_key_file: Path | None,
    kubeconfig: Path | None,
    log_format: Literal["text", "json"],
) -> None:
    """Serve an admission webhook that rejects ConfigMaps whose policies contain errors.

    kubectl shows the errors. It also shows warnings, which do not reject the ConfigMap.
    """
    from kube_policy_scheduler.adapters.kube.webhook_certificate import WebhookNames

    if self_managed_certificate == (certificate_file is not None) or (certificate_file is None) != (key_file is None):
        raise click.UsageError("specify --certificate-file and --key-file, or --self-managed-certificate")
    logs.configure(LogSettings(format=log_format))
    ignored: list[str] = []
    proof = PolicyProof(public_key_file) if checksums or public_key_file is not None else None
    try:
        policies = load_settings(config, ignored=ignored).policies if config is not None else None
    except DocumentError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    logs.warn_of_ignored(ignored)
    options = _Options(*host_and_port(address, hint="--address"), address_file, proof, *_owners(policies))
    home = namespace or own_namespace()
    if self_managed_certificate and home is None:
        raise click.UsageError("outside a pod, --self-managed-certificate requires --namespace")
    names = WebhookNames(home, secret, service, configuration) if self_managed_certificate and home else None
    try:
        sys.exit(asyncio.run(_run(options, names, certificate_file, key_file, kubeconfig)))
    except (CertificateError, OutputError, ServerError) as error:
        click.echo(f"policy-scheduler webhook: {error}", err=True)
        sys.exit(2)
    except KubeError as error:
        click.echo(f"policy-scheduler webhook: {error}", err=True)
        sys.exit(1)


def _owners(policies: PolicySettings | None) -> tuple[dict[str, Owner] | None, tuple[str, ...]]:
    """Return the owners in a configuration by what holds their policies, as `judge` takes them, and the extensions."""
    from kube_policy_scheduler.documents.owner_settings import owner_of

    if policies is None:
        return None, ()
    owners = policies.owners
    found = {}
    for each in owners:
        if each.config_map is not None:
            found[f"configMap {each.config_map}"] = owner_of(each, owners=len(owners))
        if each.scheduling_policies is not None:
            found[each.scheduling_policies] = owner_of(each, owners=len(owners))
    return found, policies.extensions


async def _run(
    options: _Options,
    names: WebhookNames | None,
    certificate_file: Path | None,
    key_file: Path | None,
    kubeconfig: Path | None,
) -> int:
    stopped, loops = asyncio.Event(), Loops()
    end_on_signals(stopped.set, what="finishing open reviews")
    async with contextlib.AsyncExitStack() as stack:
        if names is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            certificate_file = key_file = folder / "serving.pem"
            await _look_after(names, certificate_file, kubeconfig, stack, loops)
        certificate = ServingCertificate(certificate_file=certificate_file, key_file=key_file)
        await _serve(options, certificate, stack, loops)
        await stopped.wait()
    logger.info("shut down cleanly")
    return 0


async def _serve(
    options: _Options, certificate: ServingCertificate, stack: contextlib.AsyncExitStack, loops: Loops
) -> None:
    from kube_policy_scheduler.daemon.webhook.review_checker import ReviewChecker
    from kube_policy_scheduler.daemon.webhook.server import CHECKS_AT_ONCE, Webhook

    server = Webhook(
        host=options.host,
        port=options.port,
        certificate=certificate,
        checkers=[
            ReviewChecker(options.proof, owners=options.owners, extensions=options.extensions)
            for _ in range(CHECKS_AT_ONCE)
        ],
        version=version("kube-policy-scheduler"),
        loops=loops,
    )
    await stack.enter_async_context(server)
    logger.info("serving reviews", extra={"url": server.http.url})
    if options.address_file is not None:
        write_file(options.address_file, [server.http.url.partition("://")[2] + "\n"])


async def _look_after(
    names: WebhookNames, file: Path, kubeconfig: Path | None, stack: contextlib.AsyncExitStack, loops: Loops
) -> None:
    from kube_policy_scheduler.adapters.kube.credentials import find_credentials
    from kube_policy_scheduler.adapters.kube.errors import ApiError, CredentialsError, ServerError
    from kube_policy_scheduler.adapters.kube.transport import Transport
    from kube_policy_scheduler.adapters.kube.webhook_certificate import RETRY_SECONDS, WebhookCertificate

    credentials = find_credentials(kubeconfig=str(kubeconfig) if kubeconfig else None, context=None)
    transport = Transport(credentials, max_connections=2)
    stack.push_async_callback(transport.close)
    certificate = WebhookCertificate(transport, names, file=file)
    deadline = asyncio.get_running_loop().time() + FIRST_TRY_SECONDS
    while True:
        try:
            await certificate.ensure()
            break
        except KubeError as error:
            final = isinstance(error, (ApiError, CredentialsError)) and not isinstance(error, ServerError)
            if final or asyncio.get_running_loop().time() > deadline:
                raise
            logger.warning("cannot reach the API server: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
    stack.push_async_callback(loops.end, loops.start("webhook-certificate", certificate.keep, restarts=True))
