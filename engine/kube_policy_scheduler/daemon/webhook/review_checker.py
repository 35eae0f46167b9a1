"""Reviews checked in processes that can be killed: what crosses the border, and this side of it.

A review comes from anyone who reaches the port. It is decoded, and its policies are parsed, checked and linted, in the
checker's process (`checker_process`), within limits of time and memory. This process only carries bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.process.worker_process import WorkerProcess
from kube_policy_scheduler.lang.owner import Owner

MODULE = "kube_policy_scheduler.daemon.webhook.checker_process"
CPU_SECONDS = 10
"""For one review. A guard for the case that nobody is left who could end the process: `check` gives it less."""
START_SECONDS = 60.0
"""On a busy machine; the time of no review."""
IDLE_SECONDS = 7 * 86_400.0
"""A process stays, as the next review has no time to wait for another one."""

Result = Literal["allowed", "refused", "not_policies", "malformed"]


class ReviewWork(msgspec.Struct, array_like=True):
    """What is to be checked."""

    body: bytes
    """The review as it came."""
    proved: bool = False
    """Whether something has to vouch for the policies."""
    public_key_file: str | None = None
    owners: Mapping[str, Owner] | None = None
    """By what holds their policies, as `judge` takes them."""
    extensions: Sequence[str] = ()
    """Whose functions policies may call."""


class ReviewResult(msgspec.Struct, array_like=True):
    """The result of a review."""

    result: Result
    answer: bytes = b""
    """The body of the response; empty where the review is malformed."""
    problem: str = ""
    """Of a malformed one: what was expected."""
    about: dict[str, str | None] = {}
    """For the log."""


class ReviewChecker:
    """Checks reviews, one after another, in a process of its own."""

    def __init__(
        self,
        proof: PolicyProof | None = None,
        *,
        owners: Mapping[str, Owner] | None = None,
        extensions: Sequence[str] = (),
        worker: WorkerProcess | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            proof: what has to vouch for policies; None: nothing.
            extensions: whose functions policies may call.
            owners: by what holds their policies, as `judge` takes them.
            worker: the process; None: one with the usual limits.
        """
        self._proof = proof
        self._owners = owners
        self._extensions = extensions
        self._worker = worker or WorkerProcess(MODULE, cpu_seconds=CPU_SECONDS, idle_seconds=IDLE_SECONDS)

    def start(self) -> None:
        """Have the process there, with all that it imports; blocks.

        Raises:
            WorkerExceeded, WorkerLost: it cannot be started.
        """
        self.check(b"", START_SECONDS)

    def stop(self) -> None:
        """End the process for good; may be called while another thread checks."""
        self._worker.stop()

    def check(self, body: bytes, seconds: float) -> ReviewResult:
        """Return the result of a review; blocks, and kills the process when the time is over.

        Raises:
            WorkerExceeded: it takes too much memory or processor time, or breaks the process.
            WorkerLate: there was no answer within these seconds.
            WorkerLost: there is no process, or it ended, for no fault of the review.
        """
        proof = self._proof
        key_file = str(proof.public_key_file) if proof is not None and proof.public_key_file is not None else None
        work = ReviewWork(body, proof is not None, key_file, self._owners, self._extensions)
        self._worker.ask(msgspec.msgpack.encode(work), within_seconds=seconds)
        return msgspec.msgpack.decode(self._worker.receive(), type=ReviewResult)
