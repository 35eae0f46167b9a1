"""The settings of the HTTP port, and the flags that change them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from kube_policy_scheduler.daemon.configuration.flags import Flags, override
from kube_policy_scheduler.daemon.configuration.settings import HttpSettings, PrometheusSettings, Settings, TlsSettings
from kube_policy_scheduler.daemon.main import main
from kube_policy_scheduler.daemon.serving.server import shown_settings, without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://prometheus:9090", "http://prometheus:9090"),
        ("https://me:s3cret@prometheus:9090/prefix?x=1", "https://prometheus:9090/prefix?x=1"),
        ("http://s3cret@[fd00::1]:9090/", "http://[fd00::1]:9090/"),
    ],
)
def test_the_settings_are_shown_without_passwords(url: str, shown: str) -> None:
    assert without_password(url) == shown
    settings = replace(Settings(), prometheus=PrometheusSettings(url=url, bearer_token_file=Path("token")))
    assert "s3cret" not in str(shown_settings(settings))
    assert shown_settings(settings)["prometheus"]["url"] == shown


def test_one_flag_makes_the_port_secure() -> None:
    assert override(Settings(), Flags()).http == HttpSettings()
    made = override(Settings(), Flags(http_secure=True, http_address="0.0.0.0:1"))
    assert made.http == HttpSettings(host="0.0.0.0", port=1, tls=TlsSettings(), authentication="kubernetes")


def test_a_certificate_of_the_configuration_stays_with_that_flag() -> None:
    own = TlsSettings(certificate_file=Path("a"), key_file=Path("b"))
    settings = replace(Settings(), http=HttpSettings(tls=own))
    assert override(settings, Flags(http_secure=True)).http.tls == own


@pytest.mark.parametrize(
    ("http", "authentication", "tls"),
    [
        (HttpSettings(), "none", None),
        (HttpSettings(host="localhost"), "none", None),
        (HttpSettings(host="0.0.0.0"), "kubernetes", TlsSettings()),
        (HttpSettings(host="::"), "kubernetes", TlsSettings()),
        (
            HttpSettings(host="10.1.2.3", tls=TlsSettings(client_names=("a",))),
            "kubernetes",
            TlsSettings(client_names=("a",)),
        ),
        (HttpSettings(host="0.0.0.0", authentication="none"), "none", None),
        (HttpSettings(host="0.0.0.0", authentication="none", tls=TlsSettings()), "none", TlsSettings()),
        (HttpSettings(authentication="kubernetes"), "kubernetes", TlsSettings()),
    ],
)
def test_a_port_that_others_can_reach_is_secure_where_nothing_else_is_said(
    http: HttpSettings, authentication: str, tls: TlsSettings | None
) -> None:
    for mode in ("scheduler", "shadow", "extender"):
        made = replace(Settings(), http=http, mode=mode).effective().http
        assert (made.authentication, made.tls) == (authentication, tls)


def test_plain_http_is_a_choice() -> None:
    settings = replace(Settings(), http=HttpSettings(host="0.0.0.0"))
    made = override(settings, Flags(http_secure=False)).effective().http
    assert made == HttpSettings(host="0.0.0.0", authentication="none")


def test_help_describes_the_flag() -> None:
    assert "--http-secure" in CliRunner().invoke(main, ["--help"]).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prometheus-url", "prometheus:9090"], "got 'prometheus:9090'"),
        (["--prometheus-url", "http://prometheus:port"], "expected a URL such as http://prometheus:9090"),
        (["--prometheus-url", "http://prometheus:99999"], "expected a URL such as"),
        (["--prometheus-url", "http://[::1"], "expected a URL such as"),
        (["--prometheus-url", "http://user@:9090"], "expected a URL such as"),
        (["--policies", "/nowhere/policies"], "/nowhere/policies does not exist"),
    ],
)
def test_an_invalid_flag_ends_the_start(arguments: list[str], message: str) -> None:
    ended = CliRunner().invoke(main, [*arguments, "--kubeconfig", "/nowhere"])
    assert ended.exit_code == 2
    assert message in ended.output


@pytest.mark.parametrize(
    "url",
    ["http://localhost:9090", "https://me:s3cret@prometheus/prefix?x=1", "http://[fd00::1]:9090/", "http://10.0.0.1"],
)
def test_a_url_is_taken_as_it_is(url: str) -> None:
    made = override(Settings(), Flags(prometheus_url=url))
    assert made.prometheus is not None
    assert made.prometheus.url == url
