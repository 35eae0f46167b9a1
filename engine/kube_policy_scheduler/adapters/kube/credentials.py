"""Credentials kept fresh: refreshed in a thread, reloaded when files change or tokens expire. Parses no file itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kube_policy_scheduler.adapters.kube.errors import CredentialsError
from kube_policy_scheduler.adapters.kube.identity import Credentials, TlsFiles, credentials_of
from kube_policy_scheduler.adapters.kube.kubeconfig import load_kubeconfig
from kube_policy_scheduler.adapters.process.worker_thread import in_thread

logger = logging.getLogger(__name__)

FRESH_SECONDS = 30.0  # how long credentials are used without looking at files and expiry again
EXPIRY_MARGIN_SECONDS = 45.0  # a token is renewed this long before it expires; above FRESH_SECONDS
RELOAD_TIMEOUT_SECONDS = 60.0  # an exec plugin may have to ask a slow identity provider
FORCED_PAUSE_SECONDS = 5.0  # between two forced looks: a revoked token must not run a plugin for every request
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class CredentialSource:
    """Hands out credentials without ever blocking the event loop."""

    def __init__(
        self,
        load: Callable[[], Credentials],
        *,
        fresh_seconds: float = FRESH_SECONDS,
        timeout_seconds: float = RELOAD_TIMEOUT_SECONDS,
    ) -> None:
        self._load = load
        self._fresh_seconds = fresh_seconds
        self._timeout_seconds = timeout_seconds
        self._current: Credentials | None = None
        self._fresh_until = 0.0
        self._force_after = 0.0
        self._problem = ""
        self._looking: asyncio.Future[Credentials] | None = None

    @property
    def current(self) -> Credentials | None:
        """The credentials in use; None before the first `get`."""
        return self._current

    def fresh(self, now: float) -> Credentials | None:
        """Return the credentials if they were looked at recently; now is the event loop's time."""
        return self._current if now < self._fresh_until else None

    async def get(self) -> Credentials:
        """Return credentials; stale ones are served at once while a thread looks for newer ones.

        Raises CredentialsError when there are none at all.
        """
        current = self._current
        if current is None:
            return await self.look()
        expired = current.expires_at is not None and current.expires_at <= time.time()
        if self.fresh(asyncio.get_running_loop().time()) is None:
            looking = self._looking or self._start(force=False)
            if expired:
                return await asyncio.shield(looking)
        return current

    async def look(self, *, force: bool = False) -> Credentials:
        """Look now and wait. force reloads even if nothing seems to have changed (the server said 401).

        Raises CredentialsError; credentials of before stay in use.
        """
        now = asyncio.get_running_loop().time()
        if force and self._looking is None and self._current is not None:
            if now < self._force_after:
                return self._current
            self._force_after = now + FORCED_PAUSE_SECONDS
        return await asyncio.shield(self._looking or self._start(force=force))

    def _start(self, *, force: bool) -> asyncio.Future[Credentials]:
        loop = asyncio.get_running_loop()
        looking = in_thread(lambda: self._reload(force=force), name="kube-credentials")
        self._looking = looking
        timer = loop.call_later(self._timeout_seconds, self._give_up, looking)

        def settle(done: asyncio.Future[Credentials]) -> None:
            timer.cancel()
            self._looking = None
            if done.cancelled():
                return
            error = done.exception()
            if error is None:
                self._take(done.result(), now=loop.time())
                return
            self._fresh_until = loop.time() + self._fresh_seconds
            if str(error) != self._problem:
                self._problem = str(error)
                kept = "; the previous credentials stay in use" if self._current is not None else ""
                logger.error("no credentials: %s%s", error, kept)

        looking.add_done_callback(settle)
        return looking

    def _take(self, found: Credentials, *, now: float) -> None:
        if self._current is not None and found is not self._current:
            logger.info("credentials renewed", extra={"source": found.source})
        self._current, self._problem = found, ""
        fresh_seconds = self._fresh_seconds
        if found.expires_at is not None:
            fresh_seconds = min(fresh_seconds, max(1.0, found.expires_at - time.time() - 1.0))
        self._fresh_until = now + fresh_seconds

    def _give_up(self, looking: asyncio.Future[Credentials]) -> None:
        if not looking.done():
            looking.set_exception(
                CredentialsError(
                    f"failed to get credentials within {self._timeout_seconds:g} s; does an exec plugin wait for input?"
                )
            )

    def _reload(self, *, force: bool) -> Credentials:
        """Return current or newly loaded credentials; runs in a thread."""
        current = self._current
        if current is None or force or current.is_outdated(now=time.time(), margin_seconds=EXPIRY_MARGIN_SECONDS):
            return self._load()
        return current


def find_credentials(
    *, kubeconfig: str | None, context: str | None, environ: Mapping[str, str] = os.environ
) -> CredentialSource:
    """Choose where credentials come from; nothing is read yet.

    Order: the given kubeconfig, $KUBECONFIG, the pod's service account, ~/.kube/config. A context without a
    kubeconfig rules the service account out.
    """
    paths = kubeconfig or environ.get("KUBECONFIG")
    in_cluster = environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists()
    if not paths and in_cluster and not context:
        return CredentialSource(lambda: load_service_account(SERVICE_ACCOUNT, environ=environ))
    chosen = paths or "~/.kube/config"
    return CredentialSource(lambda: load_kubeconfig(chosen, context=context))


def load_service_account(directory: Path, *, environ: Mapping[str, str]) -> Credentials:
    """Read token, authority and address. Raises CredentialsError."""
    source = f"service account in {directory}"
    token_file, authority = directory / "token", directory / "ca.crt"
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    try:
        if not host or not port:
            raise CredentialsError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
        token = token_file.read_text(encoding="utf-8").strip()
        if not token:
            raise CredentialsError(f"{token_file} is empty")
        if not authority.is_file():
            raise CredentialsError(f"{authority} does not exist")
    except (CredentialsError, OSError, UnicodeDecodeError) as error:
        problem = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise CredentialsError(
            f"{source} is not usable: {problem}; is this process in a pod, and automountServiceAccountToken not false?"
        ) from error
    return credentials_of(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        source=source,
        headers=[("Authorization", f"Bearer {token}")],
        tls=TlsFiles(authority=str(authority), authority_name=str(authority)),
        files=[str(token_file), str(authority)],
    )


def own_namespace() -> str | None:
    """Return the namespace of the pod we run in, None outside a cluster."""
    with contextlib.suppress(OSError):
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or None
    return None
