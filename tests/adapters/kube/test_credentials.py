"""Credentials from every source; every error names the file and what to do."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from kube_policy_scheduler.adapters.kube import credentials as credentials_module
from kube_policy_scheduler.adapters.kube.credentials import CredentialSource, find_credentials, load_service_account
from kube_policy_scheduler.adapters.kube.errors import CredentialsError
from kube_policy_scheduler.adapters.kube.identity import Credentials
from kube_policy_scheduler.adapters.kube.kubeconfig import load_kubeconfig
from kube_policy_scheduler.adapters.kube.proxy import parse_proxy


def config(**changes: Any) -> dict[str, Any]:
    """Return a kubeconfig; cluster=, user= and context= replace the inner mappings."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": changes.get("current", "dev"),
        "contexts": [
            {"name": "dev", "context": changes.get("context", {"cluster": "c", "user": "u"})},
            {"name": "prod", "context": {"cluster": "p", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": changes.get("cluster", {"server": "https://dev.example:6443"})},
            {"name": "p", "cluster": {"server": "https://prod.example:6443"}},
        ],
        "users": [{"name": "u", "user": changes.get("user", {"token": "t0ken-of-u"})}],
    }


def write(folder: Path, content: Any) -> str:
    path = folder / "kubeconfig"
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return str(path)


def load(folder: Path, *, context: str | None = None, **changes: Any) -> Credentials:
    return load_kubeconfig(write(folder, config(**changes)), context=context)


def authorization(found: Credentials) -> str | None:
    return dict(found.headers).get("Authorization")


def test_the_current_context_is_taken_unless_another_is_named(tmp_path: Path) -> None:
    found = load(tmp_path)
    assert (found.server, authorization(found)) == ("https://dev.example:6443", "Bearer t0ken-of-u")
    assert found.source == f'kubeconfig {tmp_path}/kubeconfig, context "dev"'
    assert load(tmp_path, context="prod").server == "https://prod.example:6443"


def test_several_files_are_merged_as_kubectl_does(tmp_path: Path) -> None:
    one, two = config(), config()
    one["clusters"] = one["users"] = []
    (tmp_path / "one").write_text(yaml.safe_dump(one))
    (tmp_path / "two").write_text(yaml.safe_dump(two))
    found = load_kubeconfig(f"{tmp_path}/missing:{tmp_path}/one:{tmp_path}/two", context=None)
    assert found.server == "https://dev.example:6443"


def test_relative_files_start_at_the_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    (tmp_path / "token").write_text("from-file\n")
    assert authorization(load(tmp_path, user={"tokenFile": "token"})) == "Bearer from-file"


def test_user_and_password_become_basic_authorization(tmp_path: Path) -> None:
    found = load(tmp_path, user={"username": "ann", "password": "pa:ss"})
    assert authorization(found) == "Basic " + base64.b64encode(b"ann:pa:ss").decode()


def test_a_user_without_credentials_is_anonymous(tmp_path: Path) -> None:
    assert load(tmp_path, user={}).headers == ()


def test_impersonation_is_passed_on(tmp_path: Path) -> None:
    found = load(tmp_path, user={"token": "t", "as": "bob", "as-groups": ["a", "b"]})
    assert found.headers[1:] == (
        ("Impersonate-User", "bob"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )


def test_embedded_certificates_work_and_leave_no_private_key_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    authority = trustme.CA()
    identity = authority.issue_cert("user@example.org")
    found = load(
        tmp_path,
        cluster={"server": "https://x:1", "certificate-authority-data": encoded(authority.cert_pem.bytes())},
        user={
            "client-certificate-data": encoded(identity.cert_chain_pems[0].bytes()),
            "client-key-data": encoded(identity.private_key_pem.bytes()),
        },
    )
    assert found.tls is not None
    assert found.headers == ()
    assert list(scratch.rglob("*")) == []


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(("written", "verifies"), [("true", False), ("yes", False), ("no", True), ("false", True)])
def test_verification_is_skipped_if_set_in_any_yaml_form(tmp_path: Path, written: str, verifies: bool) -> None:
    text = yaml.safe_dump(config(cluster={"server": "https://x:1", "insecure-skip-tls-verify": "WRITTEN"}))
    found = load_kubeconfig(write(tmp_path, text.replace("WRITTEN", written)), context=None)
    assert found.tls is not None
    assert (found.tls.verify_mode is not ssl.CERT_NONE) is verifies


@pytest.mark.parametrize(("given", "compression"), [({}, True), ({"disable-compression": True}, False)])
def test_compression_is_on_unless_the_cluster_disables_it(
    tmp_path: Path, given: dict[str, bool], compression: bool
) -> None:
    assert load(tmp_path, cluster={"server": "https://x:1", **given}).compression is compression


def test_proxy_and_server_name_are_read(tmp_path: Path) -> None:
    found = load(
        tmp_path, cluster={"server": "https://x:1", "proxy-url": "http://proxy:3128", "tls-server-name": "kubernetes"}
    )
    assert (found.proxy, found.tls_server_name) == ("http://proxy:3128", "kubernetes")


MISTAKES: dict[str, tuple[Any, str]] = {
    "no current context": (config(current=""), r"no current-context; give --context \(it has contexts: dev, prod\)"),
    "unknown context": (config(current="test"), r'no context "test"; it has contexts: dev, prod'),
    "unknown cluster": (config(context={"cluster": "x", "user": "u"}), r'no cluster "x"; it has clusters: c, p'),
    "unknown user": (config(context={"cluster": "c", "user": "x"}), r'no user "x"; it has users: u'),
    "no server": (config(cluster={}), r'cluster "c" needs a server that starts with https:// or http://'),
    "no scheme": (config(cluster={"server": "1.2.3.4:6443"}), r"needs a server that starts with https://"),
    "not YAML": ("apiVersion: v1\nclusters: [\n", r"not valid YAML at line \d"),
    "empty": ("", r"is empty"),
    "a list": ("- 1\n- 2\n", r"is not a kubeconfig"),
    "a string": ("hello", r"is not a kubeconfig"),
    "entries without names": (
        {"clusters": [{"a": 1}], "contexts": [], "users": []},
        r"no current-context|not a kubeconfig",
    ),
    "missing CA file": (
        config(cluster={"server": "https://x:1", "certificate-authority": "gone.pem"}),
        r"/gone.pem: No such file",
    ),
    "missing token file": (config(user={"tokenFile": "gone"}), r"/gone: no such file"),
    "bad CA data": (
        config(cluster={"server": "https://x:1", "certificate-authority-data": encoded(b"no pem")}),
        r'certificate-authority-data of cluster "c" contains no usable CA certificate',
    ),
    "CA data that is not base64": (
        config(cluster={"server": "https://x:1", "certificate-authority-data": "%%%"}),
        r'context "dev"',
    ),
    "nested without end": ("[" * 100_000, r"not valid YAML at line 1"),
    "merged without end": (
        "a0: &a0 {k: v}\n" + "\n".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)),
        r"no current-context",
    ),
    "multiplied without end": (
        "a0: &a0 [v]\n" + "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)),
        r"not valid YAML at line \d+",
    ),
    "not UTF-8": ("\udcff", r"is not UTF-8: save the file"),
    "a token over two lines": (config(user={"token": "a\x00b"}), r"the token contains invalid characters"),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_names_the_file_and_never_a_secret(name: str, tmp_path: Path) -> None:
    content, expected = MISTAKES[name]
    with pytest.raises(CredentialsError, match=expected) as raised:
        load_kubeconfig(write(tmp_path, content), context=None)
    assert f"kubeconfig {tmp_path}/kubeconfig" in str(raised.value)
    chained = raised.value.__cause__
    assert "t0ken-of-u" not in f"{raised.value} {chained!r}"


def test_the_error_for_a_missing_file_names_the_options() -> None:
    with pytest.raises(CredentialsError, match="kubeconfig /no/such does not exist; give --kubeconfig or set KUBECON"):
        load_kubeconfig("/no/such", context=None)


# --- exec plugins ---------------------------------------------------------------------------------------


def plugin(folder: Path, code: str, **settings: Any) -> dict[str, Any]:
    """Return a user whose exec plugin is a real script."""
    script = folder / "plugin.py"
    script.write_text(f"#!{sys.executable} -SE\nimport json, os, sys\n{code}")
    script.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), **settings}}


PRINT = """
def give(**status):
    print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


@pytest.mark.long
def test_an_exec_plugin_gives_the_token_with_its_arguments_and_environment(tmp_path: Path) -> None:
    user = plugin(
        tmp_path,
        PRINT + "give(token='-'.join([*sys.argv[1:], os.environ['WHO']]))",
        args=["a", "b"],
        env=[{"name": "WHO", "value": "me"}],
    )
    assert authorization(load(tmp_path, user=user)) == "Bearer a-b-me"


@pytest.mark.long
def test_an_exec_plugin_may_give_a_client_certificate(tmp_path: Path) -> None:
    identity = trustme.CA().issue_cert("user@example.org")
    (tmp_path / "cert.pem").write_bytes(identity.cert_chain_pems[0].bytes())
    (tmp_path / "key.pem").write_bytes(identity.private_key_pem.bytes())
    code = f"""
give(clientCertificateData=open({str(tmp_path / "cert.pem")!r}).read(),
     clientKeyData=open({str(tmp_path / "key.pem")!r}).read())
"""
    found = load(tmp_path, user=plugin(tmp_path, PRINT + code))
    assert found.headers == ()
    assert found.tls is not None


@pytest.mark.long
def test_an_exec_plugin_gets_the_cluster_if_it_asks_for_it(tmp_path: Path) -> None:
    code = (
        PRINT + "info = json.loads(os.environ['KUBERNETES_EXEC_INFO']); give(token=info['spec']['cluster']['server'])"
    )
    found = load(tmp_path, user=plugin(tmp_path, code, provideClusterInfo=True))
    assert authorization(found) == "Bearer https://dev.example:6443"


PLUGIN_FAILURES = {
    "exit code": (
        "sys.stderr.write('login expired\\n'); sys.exit(3)",
        r"failed: exec: process returned 3. login expired",
    ),
    "no JSON": ("print('hello')", r"failed: exec: failed to decode process output"),
    "nothing in it": (PRINT + "give()", r"returned neither a token nor a client certificate with key"),
    "certificate without key": (PRINT + "give(clientCertificateData='x')", r"returned neither a token nor"),
    "another version": (
        "print(json.dumps({'apiVersion': 'v9', 'kind': 'ExecCredential', 'status': {'token': 'x'}}))",
        r"plugin api version v9 does not match",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", list(PLUGIN_FAILURES))
def test_a_failed_exec_plugin_is_reported(name: str, tmp_path: Path) -> None:
    code, expected = PLUGIN_FAILURES[name]
    with pytest.raises(CredentialsError, match=expected) as raised:
        load(tmp_path, user=plugin(tmp_path, code))
    assert f'exec plugin "{tmp_path}/plugin.py" of user "u"' in str(raised.value)


@pytest.mark.long
def test_an_exec_plugin_that_is_not_there_is_named_with_its_install_hint(tmp_path: Path) -> None:
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "no-such-plugin",
            "installHint": "run: install the plugin",
        }
    }
    with pytest.raises(CredentialsError, match=r'"no-such-plugin" .* was not found; run: install the plugin'):
        load(tmp_path, user=user)


async def test_an_auth_provider_gives_its_token(tmp_path: Path) -> None:
    claims = base64.urlsafe_b64encode(b'{"exp": 9999999999}').decode().rstrip("=")
    provider = {"name": "oidc", "config": {"id-token": f"head.{claims}.signature"}}
    found = load(tmp_path, user={"auth-provider": provider})
    assert authorization(found) == f"Bearer head.{claims}.signature"
    assert found.always_reload


# --- service accounts -----------------------------------------------------------------------------------

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("pod-token\n")
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    return tmp_path


def test_a_service_account_is_read(account: Path) -> None:
    found = load_service_account(account, environ=IN_POD)
    assert (found.server, authorization(found)) == ("https://10.0.0.1:443", "Bearer pod-token")


@pytest.mark.parametrize(
    ("remove", "environ", "expected"),
    [
        ("token", IN_POD, ".*/token: No such file or directory"),
        ("ca.crt", IN_POD, ".*/ca.crt does not exist"),
        ("", {}, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"),
    ],
)
def test_the_error_for_an_incomplete_service_account_names_what_is_missing(
    account: Path, remove: str, environ: Mapping[str, str], expected: str
) -> None:
    if remove:
        (account / remove).unlink()
    with pytest.raises(CredentialsError, match=f"service account in .* is not usable: {expected}; is this process in"):
        load_service_account(account, environ=environ)


async def test_sources_are_chosen_in_the_documented_order(
    account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials_module, "SERVICE_ACCOUNT", account)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write(tmp_path, config())
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(yaml.safe_dump(config(current="prod")))

    async def server(*, kubeconfig: str | None = None, context: str | None = None, **environ: str) -> str:
        return (await find_credentials(kubeconfig=kubeconfig, context=context, environ=environ).get()).server

    assert await server(kubeconfig=path, **IN_POD) == "https://dev.example:6443"
    assert await server(KUBECONFIG=path, **IN_POD) == "https://dev.example:6443"
    assert await server(**IN_POD) == "https://10.0.0.1:443"
    assert await server(context="dev", **IN_POD) == "https://dev.example:6443"
    assert await server() == "https://prod.example:6443"


# --- renewal --------------------------------------------------------------------------------------------


async def test_a_rotated_token_file_is_picked_up(account: Path) -> None:
    source = CredentialSource(lambda: load_service_account(account, environ=IN_POD))
    before = await source.get()
    rotated = account / "token.new"
    rotated.write_text("rotated-token\n")
    rotated.replace(account / "token")
    after = await source.look()
    assert authorization(after) == "Bearer rotated-token"
    assert after.connection_key == before.connection_key


async def test_a_token_mounted_by_kubelet_is_picked_up_when_its_link_is_swapped(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "token").write_text(f"token-{number}")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "token").symlink_to("..data/token")
    source = CredentialSource(lambda: load_service_account(tmp_path, environ=IN_POD))
    assert authorization(await source.get()) == "Bearer token-1"
    (tmp_path / "..tmp").symlink_to("..2")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    assert authorization(await source.look()) == "Bearer token-2"


async def test_a_changed_authority_asks_for_new_connections(account: Path) -> None:
    source = CredentialSource(lambda: load_service_account(account, environ=IN_POD))
    before = await source.get()
    trustme.CA().cert_pem.write_to_path(account / "ca.crt")
    assert (await source.look()).connection_key != before.connection_key


async def test_nothing_is_read_again_while_nothing_changed(tmp_path: Path) -> None:
    loads = 0
    path = write(tmp_path, config())

    def load() -> Credentials:
        nonlocal loads
        loads += 1
        return load_kubeconfig(path, context=None)

    source = CredentialSource(load)
    first = await source.get()
    for _ in range(5):
        assert await source.look() is first
        assert await source.get() is first
    assert loads == 1


def counting_plugin(folder: Path, *, lifetime_seconds: float) -> dict[str, Any]:
    code = f"""
import datetime
path = {str(folder / "runs")!r}
runs = int(open(path).read()) + 1 if os.path.exists(path) else 1
open(path, 'w').write(str(runs))
end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds={lifetime_seconds})
give(token=f"run-{{runs}}", expirationTimestamp=end.strftime('%Y-%m-%dT%H:%M:%SZ'))
"""
    return plugin(folder, PRINT + code)


@pytest.mark.long
async def test_a_token_of_a_plugin_is_kept_until_it_is_about_to_expire(tmp_path: Path) -> None:
    path = write(tmp_path, config(user=counting_plugin(tmp_path, lifetime_seconds=3600)))
    source = CredentialSource(lambda: load_kubeconfig(path, context=None))
    for _ in range(3):
        assert authorization(await source.look()) == "Bearer run-1"


@pytest.mark.long
async def test_a_short_lived_token_of_a_plugin_does_not_run_it_for_every_request(tmp_path: Path) -> None:
    path = write(tmp_path, config(user=counting_plugin(tmp_path, lifetime_seconds=40)))
    source = CredentialSource(lambda: load_kubeconfig(path, context=None))
    for _ in range(20):
        assert authorization(await source.get()) == "Bearer run-1"
    assert authorization(await source.look()) == "Bearer run-2"  # what happens after FRESH_SECONDS


@pytest.mark.long
async def test_a_plugin_that_fails_later_leaves_the_old_token_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, config(user=plugin(tmp_path, PRINT + "give(token='good')")))
    source = CredentialSource(lambda: load_kubeconfig(path, context=None))
    await source.get()
    plugin(tmp_path, "sys.exit(1)")
    os.utime(path, (1, 1))
    with pytest.raises(CredentialsError, match="exec plugin"):
        await source.look()
    assert authorization(await source.get()) == "Bearer good"
    assert "no credentials: exec plugin" in caplog.text
    assert "; the previous credentials stay in use" in caplog.text


async def test_stale_credentials_are_served_while_newer_ones_are_looked_for() -> None:
    answers, newer_are_there = [made("one"), made("two")], threading.Event()

    def load() -> Credentials:
        if len(answers) == 1:
            newer_are_there.wait(30)
        return answers.pop(0)

    source = CredentialSource(load, fresh_seconds=0.0)
    assert authorization(await source.get()) == "one"
    assert authorization(await source.get()) == "one"
    newer_are_there.set()
    assert authorization(await source.look()) == "two"


def made(token: str) -> Credentials:
    return Credentials(
        source="a test",
        server="http://x",
        headers=(("Authorization", token),),
        tls=None,
        tls_server_name=None,
        proxy=None,
        no_proxy=None,
        connection_key=(),
        files=(),
        always_reload=True,
    )


async def test_a_plugin_that_hangs_is_given_up_without_blocking_the_loop() -> None:
    def load() -> Credentials:
        time.sleep(0.4)
        return made("late")

    source = CredentialSource(load, timeout_seconds=0.05)
    with pytest.raises(CredentialsError, match=r"get credentials within 0.05 s; does an exec plugin wait for input"):
        await source.get()
    await asyncio.sleep(0.5)  # its late answer must not disturb anything


def test_credentials_never_show_their_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert "t0ken-of-u" not in repr(load(tmp_path))
    assert "t0ken-of-u" not in caplog.text


def test_no_secret_is_in_the_text_of_credentials() -> None:
    assert repr(made("s3cret")) == "Credentials(source='a test', server='http://x')"
    assert "s3cret" not in repr(parse_proxy("http://me:s3cret@proxy:3128"))
