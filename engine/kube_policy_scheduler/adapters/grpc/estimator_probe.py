"""Asks the estimators of clusters once, for commands that look at them and end."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from typing import NamedTuple

from kube_policy_scheduler.adapters.grpc.estimator_client import EstimatorClient, EstimatorError
from kube_policy_scheduler.adapters.grpc.grpc_tls import Renewed, TlsFiles
from kube_policy_scheduler.documents.estimator_settings import EstimatorsSettings
from kube_policy_scheduler.fleet.karmada.estimates import Demand, ReplicasQuestion

ASKED = Demand({"cpu": "1"})
"""What room is asked for: pods of one core."""
AT_ONCE = 64


class ProbedEstimator(NamedTuple):
    """How the estimator of a cluster answered."""

    cluster: str
    problem: str = ""
    """Why it gave no answer; "" if it did."""
    seconds: float = 0.0
    room: int = 0
    """Of pods of one core; -1: it has no opinion."""
    source: str = ""
    version: str = ""
    """Of the server; "" if it does not say it."""
    expires: float | None = None
    """When its certificate ends, Unix seconds; None if it has none."""


def probe(asked: EstimatorsSettings, clusters: Sequence[str]) -> list[ProbedEstimator]:
    """Ask the estimator of each cluster.

    Raises:
        CertificateError: a file of certificates cannot be used.
    """
    files = TlsFiles(asked.certificate_file, asked.key_file, asked.ca_file)
    certificates = Renewed(files) if asked.ca_file is not None else None

    async def all_of_them() -> list[ProbedEstimator]:
        permits = asyncio.Semaphore(AT_ONCE)

        async def one(cluster: str) -> ProbedEstimator:
            async with permits:
                return await _probed(asked, cluster, certificates)

        return list(await asyncio.gather(*map(one, clusters)))

    return asyncio.run(all_of_them())


async def _probed(asked: EstimatorsSettings, cluster: str, certificates: Renewed | None) -> ProbedEstimator:
    client, began = EstimatorClient(asked.address_of(cluster), certificates=certificates), time.monotonic()
    try:
        found = await client.ask(ReplicasQuestion(cluster, "default", ASKED), seconds=asked.timeout)
    except EstimatorError as error:
        return ProbedEstimator(cluster, problem=str(error))
    finally:
        await client.close()
    took = time.monotonic() - began
    expires = await _expiry(asked, cluster) if certificates is not None else None
    return ProbedEstimator(cluster, "", took, found.room, found.source, found.version, expires)


async def _expiry(asked: EstimatorsSettings, cluster: str) -> float | None:
    """Return when the certificate of a server ends; None if it does not show it."""
    host, _, port = asked.address_of(cluster).rpartition(":")
    context = ssl.create_default_context(cafile=asked.ca_file)
    context.set_alpn_protocols(["h2"])
    if asked.certificate_file is not None:
        context.load_cert_chain(asked.certificate_file, asked.key_file)
    try:
        async with asyncio.timeout(asked.timeout):
            _, writer = await asyncio.open_connection(host, int(port), ssl=context)
            try:
                shown = writer.get_extra_info("ssl_object").getpeercert()
            finally:
                writer.transport.abort()  # a close would wait for the server's, and the loop ends before that
    except (OSError, TimeoutError):
        return None
    return float(ssl.cert_time_to_seconds(shown["notAfter"])) if shown else None
