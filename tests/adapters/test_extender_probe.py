"""Whether extenders answer, looked at without asking about a pod."""

from __future__ import annotations

from kube_policy_scheduler.adapters.http.extender_probe import ExtenderProbe, probe
from kube_policy_scheduler.documents.extender_settings import HttpExtenderSettings
from tests.fakes.extender_server import ExtenderServer, in_thread


def looked_at(**settings: object) -> ExtenderProbe:
    (found,) = probe([HttpExtenderSettings(**settings)])  # type: ignore[arg-type]
    return found


def test_one_that_answers_is_fine_and_is_not_asked_about_any_pod() -> None:
    server = ExtenderServer()
    with in_thread(server):
        found = looked_at(url_prefix=server.url, filter_verb="filter")
        assert (found.problem, found.absent) == ("", ())
        assert found.seconds > 0
        assert not server.asked


def test_verbs_that_do_not_exist_are_named() -> None:
    server = ExtenderServer()
    with in_thread(server):
        found = looked_at(url_prefix=server.url.replace("scheduler", "typo"), filter_verb="filter", bind_verb="bind")
    assert found.absent == ("filter", "bind")


def test_nobody_listens_or_it_is_no_tls() -> None:
    assert looked_at(url_prefix="http://127.0.0.1:1", filter_verb="filter").problem == "connection refused"
    server = ExtenderServer()
    with in_thread(server):
        found = looked_at(url_prefix=server.url.replace("http:", "https:"), filter_verb="filter")
    assert found.problem.startswith("TLS failed")
