"""Whom a decision maker asks for room: `fleet.estimators` of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeAlias

from msgspec import Meta

from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.codes import MISSING_KEY
from kube_policy_scheduler.documents.schema import DocumentSchema
from kube_policy_scheduler.documents.shape import PositiveDuration, Section, build, expected, schema_of, seconds
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_document, read_source

EstimatorAddress: TypeAlias = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9.{}-]*\{cluster\}[A-Za-z0-9.{}-]*:[0-9]{1,5}$"),
    expected("an address with `{cluster}` and a port, such as estimator.{cluster}.example.com:10352"),
]


class EstimatorsSettings(Section, frozen=True):
    """Whom to ask how many more replicas a cluster has room for: servers of Karmada's estimator protocol, or the API
    servers of the clusters. Set `address`, `members` or both."""

    address: EstimatorAddress | None = None
    """Address of the server of a cluster; `{cluster}` stands for its name, such as
    `policy-scheduler-estimator.{cluster}.example.com:10352`. None: there are no such servers."""
    ca_file: Path | None = None
    """CA certificates of the servers in PEM; read again when it changes. None: connections are not encrypted."""
    certificate_file: Path | None = None
    """Client certificate for mutual TLS; requires `keyFile` and `caFile`."""
    key_file: Path | None = None
    """Client key for mutual TLS; requires `certificateFile`."""
    timeout: PositiveDuration = seconds(3)
    """Time for an answer. Other bindings are decided meanwhile."""
    members: bool = False
    """Read nodes and pods of a cluster whose estimator gives no answer, with the credentials that Karmada has of it:
    the Secret of `spec.secretRef` of the Cluster. This requires the role in `deploy/fleet/members`."""

    def address_of(self, cluster: str) -> str:
        """Return the address of the server of a cluster, where `address` is set."""
        assert self.address is not None, "there are no servers"
        return self.address.replace("{cluster}", cluster)


class _Fleet(Section, frozen=True):
    estimators: EstimatorsSettings | None = None


class _Configuration(Section, frozen=True):
    fleet: _Fleet = _Fleet()


def check_estimators(document: Document, asked: EstimatorsSettings | None) -> Iterator[Diagnostic]:
    """Yield what is missing beside what is there."""
    if asked is None:
        return
    path = "fleet", "estimators"
    if asked.address is None and not asked.members:
        message = "fleet.estimators needs `address` or `members: true`"
        yield document.error(path, MISSING_KEY, message=message)
    for name, file in (("caFile", asked.ca_file), ("certificateFile", asked.certificate_file)):
        if file is not None and asked.address is None:
            yield document.error(
                (*path, name), MISSING_KEY, message=f"fleet.estimators.{name} needs `address` beside it"
            )
    files = {"certificateFile": asked.certificate_file, "keyFile": asked.key_file}
    given, absent = ([name for name, file in files.items() if (file is None) is missing] for missing in (False, True))
    if given and absent:
        message = f"key `{given[0]}` needs `{absent[0]}` beside it"
        yield document.error((*path, given[0]), MISSING_KEY, message=message, key=True)
    if asked.certificate_file is not None and asked.ca_file is None:
        message = "fleet.estimators.certificateFile needs `caFile` beside it"
        yield document.error((*path, "certificateFile"), MISSING_KEY, message=message)


def read_estimators(path: Path) -> EstimatorsSettings | None:
    """Return whom a configuration file says to ask, None: nobody; its other settings are not looked at.

    Raises:
        DocumentError: it cannot be read, or this part of it is not as it should be.
    """
    document = parse_document(read_source(path))
    fleet = document.value.get("fleet")
    asked = fleet.get("estimators") if isinstance(fleet, dict) else None
    if asked is None:
        return None
    schema = schema_of(_Configuration) | {"additionalProperties": True}
    schema["properties"]["fleet"] |= {"additionalProperties": True}
    found = DocumentSchema(schema).check(document)
    if found:
        raise DocumentError(found)
    estimators = build(_Configuration, {"fleet": {"estimators": asked}}, folder=path.parent).fleet.estimators
    if problems := [*check_estimators(document, estimators)]:
        raise DocumentError(problems)
    return estimators
