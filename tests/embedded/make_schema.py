"""Writes the schema of the embedded API server from descriptions of the Kubernetes API that other programs bring.

    python -m tests.embedded.make_schema KUBECTL GO_SOURCES engine/kube_policy_scheduler/documents/api_schema.json

Names, types and merge keys of fields come from the package `kubernetes-validate`; their protobuf numbers from the
descriptors inside a kubectl of version 1.27 to 1.33 (later ones no longer carry them). The sources of the Go modules
k8s.io/api and k8s.io/apimachinery, in the folders `api` and `apimachinery` of GO_SOURCES, say which are pointers.

The result holds facts only: for each type, `field: type`, where a type is a scalar, the name of another type, `[]T`
or `{}T`. A field that must be given ends in `!`. After the type of a list comes how two lists merge: `merge=KEY`
(strategic merge by key), `set` (without key), `retain`, `keys=A,B` (server-side apply by keys). Last is the field's
protobuf number: `#3`, or `#2.3` where field 2 is a message that JSON has inline. `wrapped` marks lists that protobuf
puts into a message of their own, `pointer` scalars whose zero (`0`, `""`, false) differs from their absence.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from kube_policy_scheduler.embedded.protobuf import ProtobufError, read_fields
from kube_policy_scheduler.embedded.resources import RESOURCES

_VERSION = "v1.36.0-local"
_SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "micro-time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "any",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch": "any",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
}
_EXTRA_KINDS = {
    ("authentication.k8s.io/v1", "TokenRequest"),
    ("autoscaling/v1", "Scale"),
    ("policy/v1", "Eviction"),
    ("v1", "Binding"),
    ("v1", "DeleteOptions"),
    ("v1", "Status"),
}
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_RULE = "io.k8s.api.resource.v1.DeviceTaintRule"
_OF_1_37: dict[str, dict[str, dict[str, str]]] = {
    "resource.k8s.io/v1": {
        _RULE: {
            "apiVersion": "string",
            "kind": "string",
            "metadata": f"{_META}.ObjectMeta",
            "spec!": f"{_RULE}Spec",
            "status": f"{_RULE}Status",
        },
        f"{_RULE}List": {
            "apiVersion": "string",
            "items!": f"[]{_RULE}",
            "kind": "string",
            "metadata": f"{_META}.ListMeta",
        },
        f"{_RULE}Spec": {
            "deviceSelector": "io.k8s.api.resource.v1.DeviceTaintSelector",
            "taint!": "io.k8s.api.resource.v1.DeviceTaint",
        },
        f"{_RULE}Status": {"conditions": f"[]{_META}.Condition merge=type keys=type"},
        "io.k8s.api.resource.v1.DeviceTaintSelector": dict.fromkeys(("device", "driver", "pool"), "string pointer"),
    },
}
"""Types by group and version that the package does not describe yet: facts of `k8s.io/api` 0.37."""
_GZIP = re.compile(rb"\x1f\x8b\x08")
_MAX_DESCRIPTOR_BYTES = 1 << 19
_NAME, _PACKAGE, _MESSAGES = 1, 2, 4  # FileDescriptorProto
_FIELDS, _NESTED, _NUMBER, _LABEL, _TYPE_NAME = 2, 3, 3, 4, 6  # DescriptorProto, FieldDescriptorProto
_REPEATED = 3


@dataclass(frozen=True, slots=True)
class ProtoField:
    """One field of a protobuf message."""

    name: str
    number: int
    repeated: bool
    type: str
    """Name of the message it holds, empty for scalars; of a map, the name of its entry."""


def messages(program: Path) -> dict[str, list[ProtoField]]:
    """Return the fields of all messages whose descriptors a Go program carries, by the names OpenAPI uses."""
    content = program.read_bytes()
    found: dict[str, list[ProtoField]] = {}
    for match in _GZIP.finditer(content):
        decompressor = zlib.decompressobj(wbits=31)
        try:
            raw = decompressor.decompress(content[match.start() : match.start() + _MAX_DESCRIPTOR_BYTES])
            file = list(read_fields(raw)) if decompressor.eof else []
        except (zlib.error, ProtobufError, IndexError):
            continue
        package = _first(file, _PACKAGE)
        if _first(file, _NAME).endswith(".proto") and package.startswith("k8s.io."):
            for number, message in file:
                if number == _MESSAGES and isinstance(message, bytes):
                    found.update(_message(message, package))
    return found


def _first(fields: list[tuple[int, Any]], number: int) -> str:
    return next((value.decode(errors="replace") for at, value in fields if at == number and value), "")


def _message(raw: bytes, prefix: str) -> Iterator[tuple[str, list[ProtoField]]]:
    parts: list[tuple[int, Any]] = list(read_fields(raw))
    path = f"{prefix}.{_first(parts, _NAME)}"
    fields = []
    for number, value in parts:
        if number == _NESTED:
            yield from _message(value, path)
        elif number == _FIELDS:
            field: dict[int, Any] = dict(read_fields(value))
            kind = field.get(_TYPE_NAME, b"").decode().lstrip(".")
            repeated = field.get(_LABEL) == _REPEATED
            fields.append(
                ProtoField(field[_NAME].decode(), field[_NUMBER], repeated, _openapi_name(kind) if kind else "")
            )
    yield _openapi_name(path), fields


def _openapi_name(name: str) -> str:
    return "io.k8s." + name.removeprefix("k8s.io.")


def numbers(name: str, fields: set[str], protos: dict[str, list[ProtoField]]) -> dict[str, str]:
    """Return the protobuf numbers of a type's fields, as text to append to their types."""
    found: dict[str, str] = {}
    by_lower = {field.lower(): field for field in fields}
    for field in protos.get(name, ()):
        inner = protos.get(field.type, ())
        if field.name.lower() in by_lower:
            wrapped = _is_wrapper(inner) if not field.repeated else _is_map_of_wrappers(inner, protos)
            found[by_lower[field.name.lower()]] = f" #{field.number}" + (" wrapped" if wrapped else "")
        else:
            for key, text in numbers(field.type, fields, protos).items():
                found.setdefault(key, f" #{field.number}.{text.removeprefix(' #')}")
    return found


def _is_wrapper(fields: list[ProtoField] | tuple[()]) -> bool:
    return [(field.name, field.type) for field in fields] == [("items", "")]


def _is_map_of_wrappers(entry: list[ProtoField] | tuple[()], protos: dict[str, list[ProtoField]]) -> bool:
    values = [field for field in entry if field.name == "value"]
    return [field.name for field in entry] == ["key", "value"] and _is_wrapper(protos.get(values[0].type, ()))


_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\t(?:(?P<name>\w+)\s+)?(?P<type>[\w.*\[\]{}]+)\s+`json:\"(?P<json>[^\"]*)\"", re.MULTILINE)


def pointers(sources: Path) -> dict[str, set[str]]:
    """Return the JSON names of fields that are pointers in Go, by OpenAPI's name of their type.

    sources: a folder with the modules `api` and `apimachinery`.
    """
    found: dict[str, set[str]] = {}
    for file in sorted(sources.rglob("*.go")):
        module, *folders = file.relative_to(sources).parts[:-1]
        package = ".".join(("io.k8s", module, *folders))
        structs = dict(_STRUCT.findall(file.read_text(encoding="utf-8")))
        for struct, body in structs.items():
            names = found.setdefault(f"{package}.{struct}", set())
            for field in _FIELD.finditer(body):
                name, _, options = field["json"].partition(",")
                if name and field["type"].startswith("*"):
                    names.add(name)
                elif options == "inline" and field["type"] in structs:  # also the fields of what is inside
                    inner = _FIELD.finditer(structs[field["type"]])
                    names |= {each["json"].partition(",")[0] for each in inner if each["type"].startswith("*")}
    return found


def mark_pointers(types: dict[str, dict[str, str]], found: dict[str, set[str]]) -> None:
    """Add to the types of scalar fields whether they are pointers."""
    for name, fields in types.items():
        for field, text in fields.items():
            kind = text.split(" ")[0]
            is_zero_possible = kind in ("string", "int32", "int64", "number", "boolean")
            if is_zero_possible and field.removesuffix("!") in found.get(name, ()):
                fields[field] = f"{text} pointer"


def _type(schema: dict[str, Any], found: list[str]) -> str:
    if ref := schema.get("$ref"):
        name = str(ref).rpartition("/")[2]
        if name not in _SCALARS:
            found.append(name)
        return _SCALARS.get(name, name)
    given = schema.get("type")
    match next(item for item in given if item != "null") if isinstance(given, list) else given:
        case "array":
            element: str = _type(schema["items"], found)
            return f"[]{element}{_merging(schema)}"
        case "object":
            return "{}" + _type(schema["additionalProperties"], found) if "additionalProperties" in schema else "any"
        case "string":
            return "bytes" if schema.get("format") == "byte" else "string"
        case "integer":
            return "int32" if schema.get("format") == "int32" else "int64"
        case "number":
            return "number"
        case "boolean":
            return "boolean"
        case _:
            return "any"


def _merging(schema: dict[str, Any]) -> str:
    key, strategy = schema.get("x-kubernetes-patch-merge-key"), schema.get("x-kubernetes-patch-strategy", "")
    text = (f" merge={key}" if key else " set") if "merge" in strategy else ""
    text += " retain" if "retainKeys" in strategy else ""
    if keys := schema.get("x-kubernetes-list-map-keys"):
        text += " keys=" + ",".join(keys)
    elif schema.get("x-kubernetes-list-type") == "set" and " set" not in text:
        text += " keys="
    return text


def schema_of(definitions: dict[str, Any], protos: dict[str, list[ProtoField]]) -> dict[str, Any]:
    """Return kinds and types reachable from the kinds that are served."""
    kinds: dict[str, str] = {}
    served = {(item.api_version, item.kind) for item in RESOURCES} | _EXTRA_KINDS
    for name, definition in definitions.items():
        for gvk in definition.get("x-kubernetes-group-version-kind", ()):
            version = f"{gvk['group']}/{gvk['version']}" if gvk["group"] else gvk["version"]
            kind = gvk["kind"]
            known = (version, kind) in served or (version, kind.removesuffix("List")) in served
            if known and (kind != "DeleteOptions" or version == "v1"):
                kinds[f"{version}/{kind}"] = name
    types: dict[str, dict[str, str]] = {}
    pending = list(kinds.values())
    while pending:
        name = pending.pop()
        if name in types:
            continue
        definition = definitions[name]
        properties = definition.get("properties", {})
        required, proto = set(definition.get("required", ())), numbers(name, set(properties), protos)
        types[name] = {
            field + ("!" if field in required else ""): _type(schema, pending) + proto.get(field, "")
            for field, schema in properties.items()
        }
    return {"kinds": dict(sorted(kinds.items())), "types": dict(sorted(types.items()))}


def add_newer(result: dict[str, Any]) -> None:
    """Add the types of Kubernetes 1.37."""
    for version, types in _OF_1_37.items():
        result["types"] |= types
        kinds = {name.rpartition(".")[2]: name for name, fields in types.items() if "apiVersion" in fields}
        result["kinds"] |= {f"{version}/{kind}": name for kind, name in kinds.items()}
    for part in ("kinds", "types"):
        result[part] = dict(sorted(result[part].items()))


def main() -> None:
    program, sources, target = map(Path, sys.argv[1:])
    folder = resources.files("kubernetes_validate").joinpath("kubernetes-json-schema", _VERSION)
    definitions = json.loads(folder.joinpath("_definitions.json").read_text(encoding="utf-8"))["$defs"]
    result = schema_of(definitions, messages(program))
    mark_pointers(result["types"], pointers(sources))
    add_newer(result)
    target.write_text(written(result), encoding="utf-8")


def written(result: dict[str, Any]) -> str:
    """Return the schema as its file has it: one line for each type."""
    kinds = json.dumps(result["kinds"], indent=0)
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in result["types"].items())
    return f'{{\n"kinds": {kinds},\n"types": {{\n{rows}\n}}\n}}\n'


if __name__ == "__main__":
    main()
