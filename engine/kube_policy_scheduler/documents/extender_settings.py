"""HTTP extenders in a configuration, with the keys of `extenders` of a KubeSchedulerConfiguration."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, TypeAlias

from msgspec import Meta

from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.codes import MISSING_KEY, WRONG_VALUE
from kube_policy_scheduler.documents.http_url import PATTERN
from kube_policy_scheduler.documents.schema import DocumentSchema
from kube_policy_scheduler.documents.shape import PositiveDuration, Section, build, expected, schema_of, seconds
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_document, read_source
from kube_policy_scheduler.documents.yaml_nodes import Step

MOST_EXTENDERS = 16
MOST_WEIGHT = 2**31 - 1

Verb: TypeAlias = Annotated[
    str,
    Meta(pattern=r"^([-A-Za-z0-9_.~/]{1,200})?$"),
    expected("the last part of a URL, such as filter; empty if the extender does not have this verb"),
]


class ManagedResource(Section, frozen=True, kw_only=True):
    """An extended resource that an extender manages."""

    name: Annotated[
        str,
        Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"),
        expected("the name of an extended resource, such as example.com/gpu"),
    ]
    """Name of the extended resource."""
    ignored_by_scheduler: bool = False
    """Do not check whether a node has enough of it; only the extender does."""


class ExtenderTls(Section, frozen=True, kw_only=True):
    """How the scheduler checks the certificate of an extender, and which certificate it presents."""

    insecure: bool = False
    """Accept every certificate. For tests only."""
    server_name: str = ""
    """Name that the certificate must be for, and that is sent as SNI. Empty: the host of `urlPrefix`."""
    cert_file: Path | None = None
    """Client certificate in PEM; requires `keyFile`. It is read when the scheduler starts."""
    key_file: Path | None = None
    """Key of the client certificate, in PEM; requires `certFile`."""
    ca_file: Path | None = None
    """CA certificates to trust instead of those of the system, in PEM."""
    ca_data: str = ""
    """The same as base64 of PEM; goes before `caFile`."""


class HttpExtenderSettings(Section, frozen=True, kw_only=True):
    """One extender; the keys and their meaning are those of kube-scheduler."""

    url_prefix: Annotated[
        str, Meta(pattern=PATTERN), expected("a URL such as http://gpu-extender.kube-system:8888/scheduler")
    ]
    """URL before the verbs."""
    filter_verb: Verb = ""
    """Verb that rejects nodes. Empty: none."""
    prioritize_verb: Verb = ""
    """Verb that gives nodes scores from 0 to 10; requires `weight`. Empty: none."""
    preempt_verb: Verb = ""
    """Verb that may drop nodes and change victims before pods are evicted. Empty: none."""
    bind_verb: Verb = ""
    """Verb that binds the pod, instead of the scheduler. Only one extender can have it. Empty: none."""
    weight: Annotated[int, Meta(ge=0, le=MOST_WEIGHT)] = 0
    """Weight of the scores: a score of 10 with weight 1 counts 100, as the best score of a plugin."""
    enable_HTTPS: bool = False  # noqa: N815 (the key of kube-scheduler)
    """Without `caFile` and `caData`, accept every certificate, as kube-scheduler does. `urlPrefix` alone says whether
    TLS is used."""
    tls_config: ExtenderTls | None = None
    """Certificates. null: the authorities of the system are trusted, and no certificate is presented."""
    http_timeout: PositiveDuration = seconds(5)
    """Timeout of one request. A filter request that times out fails the attempt of the pod; scores are left out."""
    node_cache_capable: bool = False
    """The extender knows the nodes, so that only names are sent. Otherwise whole Node objects are sent, which takes
    very much longer."""
    managed_resources: Annotated[tuple[ManagedResource, ...], Meta(max_length=100)] = ()
    """The extender is asked only about pods that request one of these. Empty: about all pods."""
    ignorable: bool = False
    """Errors of the extender do not fail the attempt. It is then asked after the others."""


def check_extenders(
    document: Document, extenders: Sequence[HttpExtenderSettings], *, at: Sequence[Step] = ("extenders",)
) -> Iterator[Diagnostic]:
    """Yield what is wrong with the extenders of a configuration, beside what its schema says."""
    resources: set[str] = set()
    binders = 0
    for number, extender in enumerate(extenders):
        place, name = (*at, number), f"extenders[{number}]"
        if extender.prioritize_verb and not extender.weight:
            message = f"{name}.prioritizeVerb needs a `weight` above 0 beside it"
            yield document.error((*place, "prioritizeVerb"), MISSING_KEY, message=message, key=True)
        binders += bool(extender.bind_verb)
        if extender.bind_verb and binders > 1:
            message = f"{name}.bindVerb: another extender has a bindVerb already, and only one can bind"
            yield document.error((*place, "bindVerb"), WRONG_VALUE, message=message)
        for index, resource in enumerate(extender.managed_resources):
            path = (*place, "managedResources", index, "name")
            domain = resource.name.partition("/")[0]
            if domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or domain.startswith("requests."):
                message = f"{name}.managedResources: {resource.name} is not an extended resource"
                yield document.error(path, WRONG_VALUE, message=message)
            if resource.name in resources:
                message = f"{name}.managedResources: {resource.name} appears twice"
                yield document.error(path, WRONG_VALUE, message=message)
            resources.add(resource.name)
        if extender.tls_config is not None:
            yield from _check_tls(document, extender.tls_config, (*place, "tlsConfig"), f"{name}.tlsConfig")


def _check_tls(document: Document, tls: ExtenderTls, place: Sequence[Step], name: str) -> Iterator[Diagnostic]:
    if (tls.cert_file is None) != (tls.key_file is None):
        given, absent = ("certFile", "keyFile") if tls.cert_file is not None else ("keyFile", "certFile")
        yield document.error(
            (*place, given), MISSING_KEY, message=f"{name}.{given} needs `{absent}` beside it", key=True
        )
    if tls.insecure and (tls.ca_file is not None or tls.ca_data):
        message = f"{name}: with `insecure: true` no CA certificate is used; leave one of them out"
        yield document.error((*place, "insecure"), WRONG_VALUE, message=message)
    if tls.ca_data and authorities(tls) is None:
        message = f"{name}.caData: expected base64 of CA certificates in PEM"
        yield document.error((*place, "caData"), WRONG_VALUE, message=message)


def authorities(tls: ExtenderTls) -> str | None:
    """Return the certificates in `caData`, None if it does not contain any."""
    try:
        text = base64.b64decode("".join(tls.ca_data.split()), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return text if "-----BEGIN CERTIFICATE-----" in text else None


class _Extenders(Section, frozen=True):
    extenders: Annotated[tuple[HttpExtenderSettings, ...], Meta(max_length=MOST_EXTENDERS)] = ()


def read_extenders(path: Path) -> tuple[HttpExtenderSettings, ...]:
    """Return the extenders of a configuration file; its other settings are not looked at.

    Raises:
        DocumentError: it cannot be read, or the extenders are not as they should be.
    """
    document = parse_document(read_source(path))
    found = DocumentSchema(schema_of(_Extenders) | {"additionalProperties": True}).check(document)
    if found:
        raise DocumentError(found)
    known = {"extenders": document.value.get("extenders")}
    extenders = build(_Extenders, known, folder=path.parent).extenders
    if problems := [*check_extenders(document, extenders)]:
        raise DocumentError(problems)
    return extenders


@cache
def extender_schema() -> DocumentSchema:
    """Return the schema of one extender."""
    return DocumentSchema(schema_of(HttpExtenderSettings))
