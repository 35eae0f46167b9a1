"""The published JSON schema of the configuration is that of the settings: `make reference` writes it."""

from __future__ import annotations

import json
from pathlib import Path

from jsonschema import Draft202012Validator

from kube_policy_scheduler.daemon.configuration.settings_text import defaults_text, schema_text
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents import published
from kube_policy_scheduler.documents.yaml_document import parse_document

FILE = Path(published.__file__).with_name("configuration.schema.json")


def test_the_published_schema_is_that_of_the_settings() -> None:
    assert FILE.read_text(encoding="utf-8") == schema_text(), "make reference"


def test_it_is_a_schema_that_the_defaults_fulfil() -> None:
    schema = json.loads(FILE.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(parse_document(Source("config.yaml", defaults_text())).value)


def test_each_key_at_the_top_says_what_it_means() -> None:
    properties = json.loads(FILE.read_text(encoding="utf-8"))["properties"]
    without = {key for key, each in properties.items() if "description" not in each}
    assert without == {"apiVersion", "kind"}


if __name__ == "__main__":
    FILE.write_text(schema_text(), encoding="utf-8")
