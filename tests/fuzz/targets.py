"""The fuzz targets: each parser of untrusted input, with a seed corpus."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import yaml

from kube_policy_scheduler.cluster import objects
from tests.cli.bad_files import COMMANDS, FILES, files_of
from tests.cli.test_bad_files import WRONG, changed, places
from tests.daemon.extender_stage import RECORDINGS
from tests.framework.rule_cases import rule_cases
from tests.fuzz import strangers
from tests.fuzz.examination import examine, timed

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Target:
    """One parser and what is behind it."""

    name: str
    what: str
    examine: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    longest: int = 4096
    """Bytes of a text; what is longer finds nothing else and takes longer."""
    words: Callable[[], Sequence[str]] = tuple
    """What texts of the kind are made of."""


# --- texts to begin with ----------------------------------------------------------------------------------


def policy_texts() -> list[str]:
    """Return all policies of the repository, also those that are broken on purpose."""
    paths = [path for folder in ("policies", "tests") for path in sorted((ROOT / folder).rglob("*.policy"))]
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths]


def policy_words() -> list[str]:
    grammar = (ROOT / "grammar" / "policy.lark").read_text(encoding="utf-8")
    return [f"{word} " for word in sorted({word for word in re.findall(r"[a-z]{2,}", grammar) if len(word) < 12})]


_KINDS = {
    "nodes": "Node", "pods": "Pod", "namespaces": "Namespace", "services": "Service", "csiNodes": "CSINode",
    "csiDrivers": "CSIDriver", "csiStorageCapacities": "CSIStorageCapacity", "persistentVolumes": "PersistentVolume",
    "persistentVolumeClaims": "PersistentVolumeClaim", "podDisruptionBudgets": "PodDisruptionBudget",
    "replicaSets": "ReplicaSet", "replicationControllers": "ReplicationController", "statefulSets": "StatefulSet",
    "storageClasses": "StorageClass", "volumeAttachments": "VolumeAttachment", "deviceClasses": "DeviceClass",
    "resourceSlices": "ResourceSlice", "resourceClaims": "ResourceClaim", "podGroups": "PodGroup",
}  # fmt: skip


@cache
def cases() -> list[Any]:
    """Return clusters with a pod to place, of all families of scheduling rules."""
    recorded = [case for _, case in rule_cases()]
    for name in ("kube-scheduler-1.36", "dra-1.36"):
        with gzip.open(ROOT / f"tests/conformance/{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            recorded += [json.loads(line) for at, line in enumerate(file) if at % 20 == 0]
    return [each["case"] for each in recorded]


def watch_lines() -> list[bytes]:
    return [b"\n".join(_lines(case)) for case in cases()]


def _lines(case: Any) -> Iterator[bytes]:
    for plural, kind in _KINDS.items():
        for thing in (case.get(plural) or ())[:3]:
            yield _line(kind, thing)
    waiting = {**case["pod"], "spec": {**case["pod"].get("spec", {}), "schedulerName": "policy-scheduler"}}
    yield _line("Pod", waiting)
    for kind in ("BOOKMARK", "DELETED", "ERROR"):
        yield _line("Pod", case["pod"], event=kind)


def _line(kind: str, thing: Any, *, event: str = "ADDED") -> bytes:
    return json.dumps({"type": event, "object": {"kind": kind, **thing}}, separators=(",", ":")).encode()


def selectors() -> list[bytes]:
    odd = (
        'device.attributes["gpu.example.com"].version.isGreaterThan(semver("1.2.3"))',
        "cel.bind(x, [1, 2], x.all(y, y > 0))",
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("10Gi")) >= 0',
        'device.driver.matches("(a+)+$")',
        'has(device.attributes["a"].b) ? device.attributes["a"].b == "c" : 1u < 2u',
        'duration("1h") > duration("-1s")',
        'timestamp("2026-01-01T00:00:00Z").getFullYear() == 2026',
        'size("é" + b"\\xff") > 0',
        '"%s %.2f".format(["a", 1.5]) != ""',
        'device.?attributes["a"].?b.orValue(true)',
        '["a", "b"].join(",").split(",", -1).exists_one(x, x == "a")',
        "type(device.driver) == string && !(1 / 0 > 0) || 9223372036854775807 + 1 > 0",
        '{"a": 1, "b": [null]}["a"] in [1.0]',
    )
    written = {
        match for case in cases() for match in re.findall(r'"expression": ("(?:[^"\\]|\\.)*")', json.dumps(case))
    }
    return [text.encode() for text in [*odd, *sorted(json.loads(each) for each in written)]]


def extender_bodies() -> list[bytes]:
    recorded = [path.read_bytes() for path in sorted(RECORDINGS.glob("*.request.json"))]
    asked = []
    for case in cases()[::4]:
        names = [node["metadata"]["name"] for node in case["nodes"]]
        asked.append({"Pod": case["pod"], "NodeNames": ["fast", "slow", *names], "Nodes": None})
        asked.append({"Pod": case["pod"], "Nodes": {"items": case["nodes"][:3]}})
        victims = {"fast": {"Pods": case["pods"][:2], "NumPDBViolations": 1}}
        asked.append({"Pod": case["pod"], "NodeNameToVictims": victims})
    return [*recorded, *(json.dumps(each, separators=(",", ":")).encode() for each in asked)]


def reviews() -> list[bytes]:
    recorded = [path.read_bytes() for path in sorted((ROOT / "tests/daemon/reviews").glob("*.json"))]
    return [*recorded, *(_review(text) for text in policy_texts()[:20])]


def _review(text: str) -> bytes:
    config_map = {"metadata": {"name": "policies", "namespace": "policy-scheduler"}, "data": {"web.policy": text}}
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "operation": "UPDATE",
        "object": config_map,
        "oldObject": {**config_map, "data": {}, "binaryData": {"b.policy": "c2NvcmUgMQo="}},
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def yaml_texts() -> list[bytes]:
    found = [*sorted((ROOT / "tests").rglob("*.yaml")), *sorted((ROOT / "deploy").rglob("*.yaml"))]
    texts = [path.read_bytes() for path in found if path.stat().st_size < 8192]
    odd = (
        b"a: &a [1, 2]\nb: *a\n<<: {c: 1}\n", b"{a: 1, a: 2}", b"? [x]\n: y\n", b"!!python/object:os.system {}\n",
        b"--- 1\n--- 2\n...\n", b"&a [*a]\n", b'{"a": [1, {"b": null}]}', b"name,cpu\na,1\n", b"a: |\n  b\n c: >-\n",
    )  # fmt: skip
    return [*texts, *odd]


def kubeconfigs() -> list[bytes]:
    users = (
        '{token: abc}',
        '{username: a, password: b}',
        '{client-certificate-data: LS0t, client-key-data: LS0t}',
        '{client-certificate: a.crt, client-key: a.key}',
        '{tokenFile: config}',
        '{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [a], env: [{name: A, value: b}],'
        ' interactiveMode: Never, provideClusterInfo: true}}',
        '{auth-provider: {name: oidc, config: {id-token: a.b.c, idp-issuer-url: "https://127.0.0.1:1"}}}',
        '{auth-provider: {name: gcp, config: {access-token: a, expiry: "2020-01-01T00:00:00Z", cmd-path: sh}}}',
        '{as: me, as-uid: "1", as-groups: [a, b], as-user-extra: {a: [b]}}',
    )  # fmt: skip
    return [
        f"""apiVersion: v1
kind: Config
current-context: c
preferences: {{}}
clusters: [{{name: k, cluster: {{server: "https://127.0.0.1:6443", certificate-authority-data: LS0t,
  insecure-skip-tls-verify: true, tls-server-name: x, proxy-url: "http://127.0.0.1:1"}}}}]
contexts: [{{name: c, context: {{cluster: k, user: u, namespace: n}}}}]
users: [{{name: u, user: {user}}}]
""".encode()
        for user in users
    ]


def quantities() -> list[bytes]:
    texts = (
        "0 1 -1 +1 100m 1.5Gi .5 1. 1e3 12e-1 1E6 8Ei 9E 1n 999999999999999999999 0.000000001 1e400 1e-400 1_0 ² 5Ki5"
    )
    return [text.encode() for text in [*texts.split(), "", " 1", "1 ", "9" * 300, "1e" + "9" * 30, "1.5", "3"]]


def prometheus_answers() -> list[bytes]:
    element = {"metric": {"__name__": "load", "node": "a", "instance": "10.0.0.1:9100"}, "value": [1.5, "2"]}
    odd = {"metric": {'quote"': ',{"metric":{', "node": "\\"}, "value": [1, "NaN"]}
    histogram = {"metric": {"node": "b"}, "histogram": [1, {"count": "1"}]}
    results = [
        ("vector", [element] * 5), ("vector", [element, odd, histogram, element]), ("vector", []),
        ("vector", [histogram]), ("scalar", [1.5, "-3e2"]), ("string", [1, "x"]),
        ("matrix", [{"metric": {}, "values": [[1, "2"]]}]),
    ]  # fmt: skip
    answers: list[Any] = [
        {"status": "success", "data": {"resultType": kind, "result": result}, "warnings": ["partial"]}
        for kind, result in results
    ]
    answers.append({"status": "error", "errorType": "bad_data", "error": "parse error"})
    compact = [json.dumps(each, separators=(",", ":")).encode() for each in answers]
    return [*compact, *(json.dumps(each).encode() for each in answers), b"<html>please log in</html>", b""]


def headers() -> list[bytes]:
    return [
        b"Bearer abc.def", b"Basic bWU6dG9rZW4=", b"basic  =", b"1", b"120", b"\xb2", b"-1", b"1e3",
        b"Wed, 21 Oct 2026 07:28:00 GMT", b"text/plain; version=1.0.0; escaping=allow-utf-8",
        b"application/openmetrics-text; version=1.0.0,text/plain;q=0.5", b"application/openmetrics-text; version=x",
        b"text/plain; version=1.0.0.0.0; escaping=",
    ]  # fmt: skip


def json_words(*structs: Any) -> Callable[[], Sequence[str]]:
    """Return what names the JSON names of fields, and what stands between them."""

    def words() -> list[str]:
        named = {name for struct in structs for name in struct.__struct_encode_fields__}
        return [*(f'"{name}":' for name in sorted(named)), "{", "}", "[", "]", ",", '""', "null", "true", "1"]

    return words


def files() -> list[bytes]:
    """Return the files of policyctl's commands, behind their names, also with something else in each place."""
    found = []
    for name in sorted({name for command in COMMANDS for name in files_of(command)}):
        content = (FILES / name).read_bytes()
        found.append(name.encode() + b"\n" + content)
        if name.endswith(".yaml"):
            document = yaml.safe_load(content)
            changes = (changed(document, path, new) for path, new in zip(places(document), cycle(WRONG), strict=False))
            found += [f"{name}\n{json.dumps(each)}".encode() for each in changes]
    return found


def _of_text(check: Callable[[str], None]) -> Callable[[bytes], None]:
    return lambda data: check(data.decode("utf-8", errors="replace"))


@cache
def targets() -> dict[str, Target]:
    """Return all targets by name."""
    found = (
        Target(
            "policies", "policies: parser, checker, linter, formatter, compiler, evaluator", _of_text(examine),
            lambda: [text.encode() for text in policy_texts()], words=policy_words,
        ),
        Target(
            "watch-lines", "lines of watches: decoder, informer, columns, one decision", strangers.examine_watch_lines,
            watch_lines, longest=16384, words=json_words(objects.Pod, objects.Node, objects.ObjectMeta),
        ),
        Target("selectors", "selectors of devices (CEL), asked about devices", strangers.examine_selector, selectors),
        Target("quantities", "quantities, held against fractions", strangers.examine_quantity, quantities, longest=300),
        Target(
            "yaml", "YAML that people write: settings, recorded objects, traces", strangers.examine_yaml, yaml_texts,
            longest=8192,
        ),
        Target(
            "extender", "requests of kube-scheduler, under each verb", strangers.examine_extender, extender_bodies,
            longest=16384,
        ),
        Target("reviews", "admission reviews", strangers.examine_review, reviews, longest=16384),
        Target(
            "files", "a file as a command of policyctl reads it; its name is the first line", strangers.examine_file,
            files, longest=32768,
        ),
        Target("kubeconfigs", "kubeconfigs; no program is run", strangers.examine_kubeconfig, kubeconfigs),
        Target(
            "prometheus", "answers of Prometheus, whole and in pieces, laid over nodes", strangers.examine_prometheus,
            prometheus_answers,
        ),
        Target("headers", "headers: tokens, formats, pauses", strangers.examine_headers, headers, longest=512),
    )  # fmt: skip
    return {target.name: replace(target, examine=timed(target.examine)) for target in found}
