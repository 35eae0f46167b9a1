"""The process that checks reviews; `review_checker` has the other side."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.http.admission_review import ReviewError, decode_review, encode_answer
from kube_policy_scheduler.adapters.process.worker_process import serve
from kube_policy_scheduler.builtins.environment import install_extensions
from kube_policy_scheduler.daemon.webhook.admission import judge
from kube_policy_scheduler.daemon.webhook.review_checker import Result, ReviewResult, ReviewWork

_decode = msgspec.msgpack.Decoder(ReviewWork).decode


def check(work: bytes) -> bytes:
    """Return the result of a review."""
    decoded = _decode(work)
    install_extensions(decoded.extensions, stopwatch=time.perf_counter)
    return msgspec.msgpack.encode(_reviewed(decoded))


def _reviewed(work: ReviewWork) -> ReviewResult:
    try:
        review = decode_review(work.body)
    except ReviewError as error:
        return ReviewResult("malformed", problem=str(error))
    key_file = Path(work.public_key_file) if work.public_key_file is not None else None
    verdict = judge(review, proof=PolicyProof(key_file) if work.proved else None, owners=work.owners)
    result: Result = "refused" if verdict.refusal is not None else "allowed"
    about = {
        "kind": review.kind,
        "namespace": review.namespace,
        "object": review.name,  # `name` of a log record is that of its logger
        "user": review.user,
        "hash": verdict.hash,
    }
    return ReviewResult(
        result if verdict.concerns_us else "not_policies",
        encode_answer(review.uid, refusal=verdict.refusal, warnings=verdict.warnings),
        about=about,
    )


if __name__ == "__main__":
    serve(check)
