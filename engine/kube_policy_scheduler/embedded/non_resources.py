"""Paths that are not resources: discovery, version, health, OpenAPI."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import orjson

from kube_policy_scheduler.embedded import discovery, openapi
from kube_policy_scheduler.embedded.dispatch import Answer
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.resources import Catalog

_NOT_FOUND = Answer(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")


def serve(path: str, accept: str, *, address: str, catalog: Catalog) -> Answer:
    """Answer a request for a path that is not a resource."""
    match [part for part in path.split("/") if part]:
        case ["version"]:
            return _json(discovery.version(catalog))
        case ["api" | "apis" as root] if "as=APIGroupDiscoveryList" in accept:
            version = "v2" if "v=v2;" in accept or accept.endswith("v=v2") or "v=v2," in accept else "v2beta1"
            media = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
            body = discovery.aggregated(catalog, legacy=root == "api", version=version)
            return Answer(200, orjson.dumps(body), content_type=media)
        case ["api"]:
            return _json(discovery.api_versions(address))
        case ["api", version]:
            return _json(discovery.resource_list(catalog, "", version))
        case ["apis"]:
            return _json(discovery.api_group_list(catalog))
        case ["apis", group]:
            found = discovery.api_group(catalog, group)
            return _json(found and {"kind": "APIGroup", "apiVersion": "v1", **found})
        case ["apis", group, version]:
            return _json(discovery.resource_list(catalog, group, version))
        case ["healthz" | "livez" | "readyz", *_]:
            return Answer(200, b"ok", content_type="text/plain; charset=utf-8")
        case ["openapi", "v2"]:
            return _openapi2(accept, catalog)
        case ["openapi", "v3"]:
            return Answer(200, _openapi3_index(catalog))
        case ["openapi", "v3", *root]:
            return _json(openapi.version3(catalog, "/".join(root)))
        case _:
            return _NOT_FOUND


def _json(body: Json | None) -> Answer:
    if body is None:
        return _NOT_FOUND
    return Answer(200, orjson.dumps(body))


def _openapi2(accept: str, catalog: Catalog) -> Answer:
    if openapi.CONTENT_TYPE in accept or openapi.OLD_CONTENT_TYPE in accept:
        # the older name is not a valid media type, and clients that request it cannot parse it in a response
        return Answer(200, _protobuf(catalog), content_type=openapi.CONTENT_TYPE)
    return _json(openapi.version2(catalog))


@lru_cache(maxsize=4)
def _protobuf(catalog: Catalog) -> bytes:
    return openapi.encode(openapi.version2(catalog))


@lru_cache(maxsize=4)
def _openapi3_index(catalog: Catalog) -> bytes:
    paths = {}
    for root in openapi.group_versions(catalog):
        digest = hashlib.sha256(orjson.dumps(openapi.version3(catalog, root))).hexdigest()
        paths[root] = {"serverRelativeURL": f"/openapi/v3/{root}?hash={digest.upper()}"}
    return orjson.dumps({"paths": paths})
