"""The Helm chart, made from the kustomizations: `python -m tests.deploy.chart` writes deploy/chart/templates.

Only Chart.yaml, values.yaml and templates/configuration.yaml are written by hand.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.deploy.manifests import DEPLOY, Json, in_namespace, key, pod_spec, with_components

CHART = DEPLOY / "chart"
BY_HAND = "configuration.yaml"
_NAMESPACE = "namespace-of-the-release"
COMPONENTS = {
    "high-availability": "gt (int .Values.replicas) 1",
    "monitoring": ".Values.monitoring.enabled",
    "rebalancing": ".Values.rebalancing.enabled",
    "sharding": ".Values.sharding.enabled",
    "scheduling-policies": ".Values.schedulingPolicies.enabled",
    "webhook-self-managed": ".Values.webhook.enabled",
}
"""Components of deploy/components, each with the condition under which its objects are made."""
INSTEAD = {
    "estimator": "overlays/estimator",
    "karmada": "fleet/host",
    "multikueue": "fleet/multikueue",
    "ocm": "fleet/ocm",
    "clusterprofile": "fleet/clusterprofile",
}
"""Values of `install` other than `scheduler`, each with the folder whose objects are made in place of all others."""
_PROFILES = "cluster-inventory"
"""The namespace that a configuration names: it is that of the release."""
_CONDITIONS = {
    "NetworkPolicy": ".Values.networkPolicy.enabled",
    "ResourceQuota": ".Values.resourceQuota.enabled",
}
"""Of objects of the base."""
_NOT_OF_THE_BASE = ("Namespace", "ConfigMap", "PodDisruptionBudget")
"""Made by `helm install --create-namespace`, by configuration.yaml, and with more than one replica."""
_HEAD = "{{- /* made by tests/deploy/chart.py: change the kustomizations instead */ -}}\n"
_IMAGE = '{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}'


class _Text(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _written_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Text.add_representer(str, _written_text)


def templates() -> dict[str, str]:
    """Return the generated files of templates/, each with its text."""
    base = {key(o): o for o in with_components("high-availability", namespace=_NAMESPACE)}
    found = {"base": [(_CONDITIONS.get(o["kind"], ""), o) for o in base.values() if o["kind"] not in _NOT_OF_THE_BASE]}
    for component, condition in COMPONENTS.items():
        made = with_components(component, namespace=_NAMESPACE)
        found[component] = [(condition, o) for o in made if key(o) not in base or o["kind"] == "PodDisruptionBudget"]
    found["webhook-self-managed"] = [*_with_and_without_policies(found["webhook-self-managed"])]
    texts = {name: "".join(_guarded(*each) for each in objects) for name, objects in found.items()}
    made = {f"{name}.yaml": f"{_HEAD}{_only('scheduler', text)}" for name, text in texts.items()}
    for name, folder in INSTEAD.items():
        others = [o for o in in_namespace(folder, _NAMESPACE) if o["kind"] != "Namespace"]
        text = "".join(f"---\n{_config_map(o) if o['kind'] == 'ConfigMap' else _template(o)}" for o in others)
        made[f"instead-{name}.yaml"] = f"{_HEAD}{_only(name, text)}"
    return made


def _only(install: str, text: str) -> str:
    """Return a template that makes its objects only for one value of `install`."""
    return f'{{{{- if eq .Values.install "{install}" }}}}\n{text}{{{{- end }}}}\n'


def _config_map(made: Json) -> str:
    """Return the configuration or the policies; `fleet.config` and `fleet.policies` take their place."""
    data = made.pop("data")
    head = yaml.dump(made, Dumper=_Text, sort_keys=False).replace(_NAMESPACE, "{{ .Release.Namespace }}")
    if "config.yaml" in data:
        text = data["config.yaml"].replace(_PROFILES, "{{ .Release.Namespace }}")
        lines = "".join(f"    {line}\n" for line in text.splitlines())
        inside = "    {{- tpl (toYaml .Values.fleet.config) . | nindent 4 }}\n"
        return f"{head}data:\n  config.yaml: |\n{_either('config', 4, inside, lines)}"
    lines = "".join(f"  {line}\n" for line in yaml.dump(data, Dumper=_Text, sort_keys=False).splitlines())
    inside = "  {{- toYaml .Values.fleet.policies | nindent 2 }}\n"
    return f"{head}data:\n{_either('policies', 2, inside, lines)}"


def _either(value: str, indent: int, given: str, otherwise: str) -> str:
    space = " " * indent
    return (
        f"{space}{{{{- if .Values.fleet.{value} }}}}\n{given}{space}{{{{- end }}}}\n"
        f"{space}{{{{- if not .Values.fleet.{value} }}}}\n{otherwise}{space}{{{{- end }}}}\n"
    )


def _with_and_without_policies(objects: list[tuple[str, Json]]) -> Iterator[tuple[str, Json]]:
    """Yield the objects of the webhook, and both forms of those that SchedulingPolicy objects change."""
    wanted = COMPONENTS["scheduling-policies"]
    both = with_components("webhook-self-managed", "scheduling-policies", namespace=_NAMESPACE)
    with_policies = {key(o): o for o in both}
    for condition, o in objects:
        other = with_policies[key(o)]
        if other == o:
            yield condition, o
        else:
            yield f"and {condition} (not {wanted})", o
            yield f"and {condition} {wanted}", other


def _guarded(condition: str, made: Json) -> str:
    text = f"---\n{_template(made)}"
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _template(made: Json) -> str:
    """Return an object with the values of the chart in their places."""
    made = copy.deepcopy(made)
    if made["kind"] == "ConfigMap":  # of the dashboard: a file of the chart that is a link to the component's
        made["data"] = {name: f'@{{{{ .Files.Get "files/{name}" | toJson }}}}@' for name in made["data"]}
    if made["kind"] == "Deployment":
        spec = pod_spec(made)
        (container,) = spec["containers"]
        container["image"] = f"@{_IMAGE}@"
        container["imagePullPolicy"] = "@{{ .Values.image.pullPolicy }}@"
        spec["imagePullSecrets"] = "@imagePullSecrets@"
        if made["metadata"]["name"] == "policy-scheduler":
            made["spec"]["replicas"] = "@{{ .Values.replicas }}@"
            made["spec"]["template"]["metadata"]["annotations"] = {
                "checksum/config": "@{{ tpl (toYaml .Values.config) . | sha256sum }}@"
            }
            spec["schedulerName"] = "@{{ .Values.schedulerName }}@"
            container["args"].append("@extraArgs@")
            container["resources"] = "@resources@"
            for name in ("nodeSelector", "tolerations"):
                spec[name] = f"@{name}@"
    text = yaml.dump(made, Dumper=_Text, sort_keys=False, width=1_000_000)
    text = text.replace("{{", '{{ "{{" }}').replace(_NAMESPACE, "{{ .Release.Namespace }}")
    text = re.sub(r"'@\{\{ \"\{\{\" \}\}(.*?)@'", r"{{\1", text)  # what was put there above
    text = re.sub(r"(?m)^( *)- '@(\w+)@'$", _list_items, text)
    return re.sub(r"(?m)^( *)(\w+): '@(\w+)@'$", _mapping, text)


def _list_items(found: re.Match[str]) -> str:
    space, name = found.groups()
    inside = f"{{{{- toYaml . | nindent {len(space)} }}}}"
    return f"{space}{{{{- with .Values.{name} }}}}\n{space}{inside}\n{space}{{{{- end }}}}"


def _mapping(found: re.Match[str]) -> str:
    inside = f"{{{{- toYaml .Values.{found[3]} | nindent {len(found[1]) + 2} }}}}"
    return f"{found[1]}{found[2]}:\n{found[1]}  {inside}"


if __name__ == "__main__":
    for name, text in templates().items():
        (CHART / "templates" / name).write_text(text, encoding="utf-8")
