"""kubectl, as people have it: Debian's, or the one beside the real control plane."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.integration.control_plane import kubectl_program


def kubectl(kubeconfig: Path, *arguments: str) -> str:
    """Run it and return what it prints; a failure is the test's."""
    done = run_kubectl(kubeconfig, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_kubectl(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it and return how it ended."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent), "NO_PROXY": "*"}
    return subprocess.run([kubectl_program(), *arguments], capture_output=True, text=True, env=environment, timeout=30)
