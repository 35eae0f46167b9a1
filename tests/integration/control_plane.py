"""A real control plane on loopback: the `etcd` and `kube-apiserver` of KUBEBUILDER_ASSETS, as envtest has them."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.children import child
from tests.integration.api import Endpoint

START_SECONDS = 60.0


def assets() -> Path | None:
    """Return the folder with the programs, None where none is named."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    return Path(named) if named else None


def kubectl_program() -> str:
    """Return the kubectl beside the control plane where there is one, else Debian's."""
    programs = assets()
    return str(programs / "kubectl") if programs is not None and (programs / "kubectl").exists() else "kubectl"


class ControlPlane:
    """A context manager; the processes are ended by their ids."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs = programs
        self._directory = directory
        self._authority = trustme.CA()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.ca_file = directory / "ca.crt"
        self.port = 0
        self._etcd_port = 0

    def __enter__(self) -> ControlPlane:
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self._write_keys()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    @property
    def endpoint(self) -> Endpoint:
        """The API server and its administrator's certificate."""
        certificate, key = self.certificate("admin", group="system:masters")
        return Endpoint(f"https://127.0.0.1:{self.port}", self.ca_file, certificate, key)

    def certificate(self, name: str, *, group: str = "") -> tuple[Path, Path]:
        """Return the files of a client certificate for a user, and of its key."""
        certificate, key = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        if not certificate.exists():
            # trustme wants a host name in every certificate; API servers look at CN and O
            issued = self._authority.issue_cert("client.invalid", common_name=name, organization_name=group or None)
            issued.cert_chain_pems[0].write_to_path(certificate)
            issued.private_key_pem.write_to_path(key)
        return certificate, key

    def process_ids(self) -> dict[str, int]:
        """Return the processes by program."""
        return {Path(str(process.args[0])).name: process.pid for process in self._processes}  # type: ignore[index]

    def _write_keys(self) -> None:
        folder = self._directory
        self._authority.cert_pem.write_to_path(self.ca_file)
        names = ("127.0.0.1", "localhost", "kubernetes.default.svc")
        server = self._authority.issue_cert(*names)
        server.cert_chain_pems[0].write_to_path(folder / "apiserver.crt")
        server.private_key_pem.write_to_path(folder / "apiserver.key")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (folder / "accounts.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    def _start(self) -> None:
        folder = self._directory
        self._etcd_port, peer, self.port = _free_ports(3)
        self._run(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{self._etcd_port}",
            f"--advertise-client-urls=http://127.0.0.1:{self._etcd_port}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )
        self._serve()

    def restart_api_server(self) -> None:
        """Kill the API server and start it again, at the same port and with all that it knew."""
        server = self._processes.pop()
        server.kill()
        server.wait()
        self._serve()

    def _serve(self) -> None:
        folder = self._directory
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={folder / 'apiserver.crt'}",
            f"--tls-private-key-file={folder / 'apiserver.key'}",
            f"--cert-dir={folder}",
            f"--client-ca-file={self.ca_file}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            # nobody makes default service accounts here
            "--disable-admission-plugins=ServiceAccount",
            *self._pod_groups(),
        )
        self._wait_ready()

    def _pod_groups(self) -> tuple[str, ...]:
        """Return what turns PodGroups on, where this version has them: a gate that it does not know would end it."""
        told = subprocess.run([self._programs / "kube-apiserver", "--help"], capture_output=True, text=True, check=True)
        if "GenericWorkload=" not in told.stdout:
            return ()
        known = (gate for gate in ("GenericWorkload", "TopologyAwareWorkloadScheduling") if f"{gate}=" in told.stdout)
        gates = ",".join(f"{gate}=true" for gate in known)
        return (f"--feature-gates={gates}", "--runtime-config=scheduling.k8s.io/v1alpha2=true")

    def _run(self, program: str, *arguments: str) -> None:
        with (self._directory / f"{program}.log").open("ab") as log:
            self._processes.append(
                child([self._programs / program, *arguments], stdout=log, stderr=log, cwd=self._directory)
            )

    def _wait_ready(self) -> None:
        context = ssl.create_default_context(cafile=str(self.ca_file))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for process in self._processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args!r} ended with {process.returncode}, see {self._directory}")
            try:
                with opener.open(f"https://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.05)
        raise RuntimeError(f"the control plane was not ready in {START_SECONDS:g} s, see {self._directory}")


def _free_ports(number: int) -> list[int]:
    """Return free ports; another process may take one before it is used; then a program ends and reports it."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
