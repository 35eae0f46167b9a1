"""The admission webhook over real HTTPS, with reviews as a kube-apiserver 1.36 sends them."""

from __future__ import annotations

import asyncio
import base64
import copy
import io
import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import trustme
import yaml
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.adapters.http.admission_review import WARNINGS_CHARACTERS, decode_review, encode_answer
from kube_policy_scheduler.adapters.process.worker_process import WorkerProcess
from kube_policy_scheduler.adapters.tls.serving_certificate import ServingCertificate
from kube_policy_scheduler.daemon.webhook import server as webhook_module
from kube_policy_scheduler.daemon.webhook.admission import MESSAGE_CHARACTERS, NOT_OURS, AdmissionResult, judge
from kube_policy_scheduler.daemon.webhook.bodies import MAX_BODY_BYTES, Bodies
from kube_policy_scheduler.daemon.webhook.checker_process import check
from kube_policy_scheduler.daemon.webhook.review_checker import ReviewChecker, ReviewResult, ReviewWork
from kube_policy_scheduler.daemon.webhook.server import Webhook
from kube_policy_scheduler.lang.owner import Owner
from tests.patience import PATIENCE_SECONDS

Json = dict[str, Any]
Post = Callable[[bytes | AsyncIterator[bytes]], Awaitable[tuple[int, str]]]
RECORDED = {
    name: json.loads((Path(__file__).parent / "reviews" / f"{name}.json").read_text()) for name in ("create", "update")
}


def review(operation: str, files: dict[str, str] | None = None, *, binary: dict[str, bytes] | None = None) -> Json:
    """A recorded review with other files in the new object."""
    made = copy.deepcopy(RECORDED[operation])
    if files is not None:
        made["request"]["object"]["data"] = files
    if binary is not None:
        encoded = {name: base64.b64encode(content).decode() for name, content in binary.items()}
        made["request"]["object"]["binaryData"] = encoded
    return made


def judged(made: Json) -> AdmissionResult:
    return judge(decode_review(json.dumps(made).encode()))


class TestJudging:
    """What may be written."""

    def test_the_config_map_of_an_owner_is_checked_against_what_the_owner_may(self) -> None:
        made = review("create", {"web.policy": "preempt never\n"})
        request = decode_review(json.dumps(made).encode())
        owner = Owner("team-a", ("team-a",))
        refused = judge(request, owners={f"configMap {request.namespace}/{request.name}": owner})
        assert "owner `team-a` may not use `preempt`" in str(refused.refusal)
        assert judge(request, owners={f"configMap {request.namespace}/other": owner}).refusal is None

    def test_a_scheduling_policy_belongs_to_the_owner_of_its_namespace(self) -> None:
        made = review("create")
        made["request"] |= {
            "kind": {"group": "policy-scheduler.dev", "version": "v1alpha1", "kind": "SchedulingPolicy"},
            "namespace": "team-a",
            "name": "web",
            "object": {"metadata": {"name": "web"}, "spec": {"policy": "preempt never\n"}},
        }
        request = decode_review(json.dumps(made).encode())
        refused = judge(request, owners={"team-a": Owner("team-a", ("team-a",))}).refusal
        assert str(refused).startswith("schedulingPolicy team-a/web was not written: 1 error in web.policy")
        made["request"]["object"]["spec"]["policy"] = 'use "common.policy"\nfilter mine\n'
        needing = judge(decode_review(json.dumps(made).encode()), owners={"team-a": Owner("team-a", ("team-a",))})
        assert needing.refusal is None
        assert "needs other SchedulingPolicies" in needing.warnings[0]
        ignored = judge(request, owners={"team-b": Owner("team-b", ("team-b",))})
        assert ignored.refusal is None
        assert "no owner of policies reads those of namespace team-a" in ignored.warnings[0]

    @pytest.mark.parametrize("kind", ["ConfigMap", "SchedulingPolicy"])
    def test_the_log_names_the_kind_of_what_was_judged(self, kind: str) -> None:
        made = review("create")
        if kind == "SchedulingPolicy":
            made["request"] |= {
                "kind": {"group": "policy-scheduler.dev", "version": "v1alpha1", "kind": kind},
                "name": "web",
                "object": {"metadata": {"name": "web"}, "spec": {"policy": "filter node.ready\n"}},
            }
        work = msgspec.msgpack.encode(ReviewWork(json.dumps(made).encode()))
        about = msgspec.msgpack.decode(check(work), type=ReviewResult).about
        assert about["kind"] == kind
        assert about["object"] == made["request"]["name"]
        assert about["namespace"] == made["request"]["namespace"]
        logging.getLogger("a test").info("policies allowed", extra=about)

    def test_what_was_recorded(self) -> None:
        assert judged(review("create")) == AdmissionResult(None, (), PolicySources.of({"default.policy": GOOD}).hash)
        assert "node.ready" in str(judged(review("update")).refusal)

    def test_all_files_are_checked_together(self) -> None:
        same = "policy same\nfilter node.ready\n"
        verdict = judged(review("create", {"a.policy": same, "b.policy": same}))
        assert "b.policy:1:1: error[" in str(verdict.refusal)
        assert judged(review("create", {"a.policy": same})).refusal is None

    def test_a_refusal_reads_well(self, snapshot: SnapshotAssertion) -> None:
        broken = {"web.policy": "filter node.redy\nscore 1 +\n", "batch.policy": "metric m = 3\n"}
        assert judged(review("create", broken)).refusal == snapshot

    def test_warnings_do_not_block(self) -> None:
        verdict = judged(review("create", {"default.policy": "filter node.ready\nscore 10\n"}))
        assert verdict.refusal is None
        (warning,) = verdict.warnings
        assert warning.startswith("default.policy:2:7: warning[")
        assert "\n" not in warning

    def test_a_refusal_is_bounded(self) -> None:
        text = "".join(f"filter node.redy{number}\n" for number in range(500))
        refusal = str(judged(review("create", {f"{name}.policy": text for name in range(20)})).refusal)
        assert len(refusal) < MESSAGE_CHARACTERS + 100
        assert refusal.endswith("more: policyctl lint shows all")

    @pytest.mark.parametrize(
        ("files", "binary", "said"),
        [
            ({}, {"x.policy": b"# caf\xe9\n"}, "x.policy:1: byte 0xe9 is not UTF-8"),
            ({"x.policy": "filter node.ready\n"}, {"y.policy": b"\xff"}, "y.policy:1: byte 0xff"),
            ({f"{n}.policy": "" for n in range(1001)}, None, "at most 1000 are allowed"),
            ({"x.policy": "#" * (2 << 20)}, None, "larger than 1024 KiB"),
        ],
    )
    def test_what_the_scheduler_would_not_read_is_refused(
        self, files: dict[str, str], binary: dict[str, bytes] | None, said: str
    ) -> None:
        assert said in str(judged(review("create", files, binary=binary)).refusal)

    def test_a_file_with_a_byte_order_mark_is_read_as_the_scheduler_reads_it(self) -> None:
        verdict = judged(review("create", {}, binary={"default.policy": b"\xef\xbb\xbf" + GOOD.encode()}))
        assert verdict.refusal is None
        assert verdict.hash == PolicySources.of({"default.policy": GOOD}).hash

    def test_taking_all_policies_away_is_refused(self) -> None:
        assert "contains no .policy file" in str(judged(review("update", {"readme.txt": ""})).refusal)

    def test_other_config_maps_and_other_operations_pass(self) -> None:
        assert judged(review("create", {"a.yaml": "filter node.redy", ".hidden.policy": "?"})) == NOT_OURS
        deleted = review("update")
        deleted["request"] |= {"operation": "DELETE", "object": None}
        assert judged(deleted) == NOT_OURS

    def test_labels_may_be_changed_beside_policies_that_were_broken_before(self) -> None:
        labelled = review("update")
        labelled["request"]["oldObject"]["data"] = labelled["request"]["object"]["data"]
        assert judged(labelled) == NOT_OURS


GOOD = RECORDED["create"]["request"]["object"]["data"]["default.policy"]


def test_warnings_are_cut_to_what_api_servers_pass_on() -> None:
    answer = json.loads(encode_answer("u", refusal=None, warnings=["x" * 300, *(["y" * 200] * 40)]))
    warnings = answer["response"]["warnings"]
    assert max(map(len, warnings)) <= 250
    assert sum(map(len, warnings)) < WARNINGS_CHARACTERS + 50
    assert warnings[-1] == f"and {41 - len(warnings) + 1} more"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@asynccontextmanager
async def served(
    authority: trustme.CA, folder: Path, *, at_once: int = 1, **options: Any
) -> AsyncIterator[tuple[Webhook, Post]]:
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    issued.private_key_pem.write_to_path(folder / "tls.key")
    certificate = ServingCertificate(certificate_file=folder / "tls.crt", key_file=folder / "tls.key")
    checkers = [ReviewChecker(worker=WorkerProcess("tests.daemon.checker_to_break")) for _ in range(at_once)]
    webhook = Webhook(host="127.0.0.1", port=0, certificate=certificate, checkers=checkers, **options)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    connector = aiohttp.TCPConnector(ssl=trusting)
    async with webhook, asyncio.timeout(PATIENCE_SECONDS), aiohttp.ClientSession(connector=connector) as session:

        async def post(body: bytes | AsyncIterator[bytes]) -> tuple[int, str]:
            data = io.BytesIO(body) if isinstance(body, bytes) else body
            async with session.post(f"{webhook.http.url}/validate?timeout=10s", data=data) as answer:
                return answer.status, await answer.text()

        while await get(webhook, "/readyz") != "ok":  # noqa: ASYNC110 - a probe is asked again and again
            await asyncio.sleep(0.02)
        yield webhook, post


async def get(webhook: Webhook, path: str) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{webhook.http.url}{path}", ssl=False) as answer,
    ):
        return await answer.text()


@pytest.mark.long
async def test_an_api_server_gets_its_answer(authority: trustme.CA, tmp_path: Path) -> None:
    async with served(authority, tmp_path) as (webhook, post):
        status, text = await post(json.dumps(RECORDED["create"]).encode())
        uid = RECORDED["create"]["request"]["uid"]
        assert status == 200
        head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        assert json.loads(text) == {**head, "response": {"uid": uid, "allowed": True}}
        _, text = await post(json.dumps(RECORDED["update"]).encode())
        response = json.loads(text)["response"]
        assert response["uid"] == RECORDED["update"]["request"]["uid"]
        assert not response["allowed"]
        assert "default.policy:1:13: error[" in response["status"]["message"]
        metrics = await get(webhook, "/metrics")
        for result in ("allowed", "refused"):
            assert f'policy_scheduler_admission_reviews_total{{result="{result}"}} 1.0' in metrics
        assert await get(webhook, "/readyz") == "ok"


NO_REVIEWS = (
    b"",
    b"{",
    b"[]",
    b'{"kind": "AdmissionReview"}',
    b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "1"}}',
    b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "kind": {}}}',
    json.dumps(review("create", {"a": 1})).encode(),  # type: ignore[dict-item]
    json.dumps(RECORDED["create"]).encode().replace(b'"data"', b'"binaryData"'),
    b"\xff\xfe",
    b"[" * 100_000,
)


@pytest.mark.long
async def test_a_body_that_is_not_a_review_is_refused(authority: trustme.CA, tmp_path: Path) -> None:
    async with served(authority, tmp_path) as (_, post):
        for body in NO_REVIEWS:
            status, text = await post(body)
            assert status == 400, body[:100]
            assert text.startswith("expected ")
        assert (await post(json.dumps(RECORDED["create"]).encode()))[0] == 200


@pytest.mark.long
async def test_a_body_without_end_is_not_read(authority: trustme.CA, tmp_path: Path) -> None:
    async with served(authority, tmp_path) as (_, post):
        status, _ = await post(b" " * (MAX_BODY_BYTES + 1))
        assert status == 413


@pytest.mark.long
async def test_a_check_that_takes_too_long_leaves_the_decision_to_the_failure_policy(
    authority: trustme.CA, tmp_path: Path
) -> None:
    async with served(authority, tmp_path, at_once=2, answer_seconds=2.0) as (webhook, post):
        body = json.dumps(RECORDED["create"]).encode()
        assert (await post(body))[0] == 200
        ends = await asyncio.gather(*(post(broken("SPIN")) for _ in range(5)))
        assert {status for status, _ in ends} == {503}
        while (await post(body))[0] != 200:  # as soon as there is a new process
            pass
        assert 'result="too_slow"}' in await get(webhook, "/metrics")


def broken(what: str) -> bytes:
    """A review that has the checker break."""
    return json.dumps(review("create", {"x.policy": f"# {what}"})).encode()


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "status", "said"),
    [
        ("FILL", 503, "checking these policies takes too much: it needs more than 256 MiB of memory"),
        ("CRASH", 503, "checking these policies takes too much: it broke the process: SIGSEGV"),
        ("RAISE", 500, "failed to check the policies; see the log of the webhook"),
    ],
)
async def test_a_review_that_breaks_its_process_gets_no_verdict_and_the_next_is_answered(
    authority: trustme.CA, tmp_path: Path, what: str, status: int, said: str
) -> None:
    async with served(authority, tmp_path) as (_, post):
        found, text = await post(broken(what))
        assert (found, text.partition(";")[0]) == (status, said.partition(";")[0])
        assert "Zero" not in text
        while (await post(json.dumps(RECORDED["create"]).encode()))[0] != 200:  # as soon as there is a new process
            pass


@pytest.mark.long
async def test_all_bodies_together_are_bounded_and_the_largest_goes_first(
    authority: trustme.CA, tmp_path: Path
) -> None:
    """Senders that never end their bodies hold 15 MiB at most, and keep no small review away."""
    bodies = Bodies(max_bytes=16 << 20)
    most = 0

    async def endless(held: int) -> AsyncIterator[bytes]:
        nonlocal most
        for _ in range(held):
            yield b" " * (1 << 20)
            most = max(most, sum(len(each.content) for each in bodies._held))
        await asyncio.sleep(60)

    async with served(authority, tmp_path, bodies=bodies, answer_seconds=6.0) as (webhook, post):
        large = [asyncio.create_task(post(endless(7))) for _ in range(6)]
        await asyncio.wait(large, return_when=asyncio.FIRST_COMPLETED)
        assert (await post(json.dumps(RECORDED["create"]).encode()))[0] == 200
        ends = [await each for each in large]
        said = {text for status, text in ends if status == 503}
        assert len(ends) == 6
        assert any(text.startswith("too many large reviews at the same time; try again") for text in said)
        assert most <= 17 << 20
        assert not bodies._held
        assert 'result="too_many"' in await get(webhook, "/metrics")


@pytest.mark.long
async def test_bodies_that_are_checked_count_and_cannot_be_dropped(authority: trustme.CA, tmp_path: Path) -> None:
    async with served(authority, tmp_path, bodies=Bodies(max_bytes=4 << 20), answer_seconds=3.0) as (_, post):
        await post(json.dumps(RECORDED["create"]).encode())
        checked = asyncio.create_task(post(broken("SPIN" + " " * (2 << 20))))
        await asyncio.sleep(0.5)
        status, text = await post(b" " * (3 << 20))
        assert (status, text) == (503, "too many large reviews at the same time; try again\n")
        assert "could not be checked in 3 s" in (await checked)[1]


def test_api_servers_wait_longer_than_a_check_may_take() -> None:
    manifest = Path(__file__).parents[2] / "deploy/webhook/validating-webhook-configuration.yaml"
    (only,) = yaml.safe_load(manifest.read_text())["webhooks"]
    assert only["timeoutSeconds"] > webhook_module.ANSWER_SECONDS
    assert only["clientConfig"]["service"]["path"] == webhook_module.PATH
