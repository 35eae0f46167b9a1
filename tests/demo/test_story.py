"""The demonstration as `make demo` runs it where there is no terminal: every step comes true."""

from __future__ import annotations

import re
import subprocess
import sys


def test_the_story_comes_true() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kube_policy_scheduler.demo"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED" in done.stdout
    assert re.search(r"its status page is http://127\.0\.0\.1:\d+", done.stdout)
