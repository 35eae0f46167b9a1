"""Looks whether HTTP extenders of a configuration answer, without asking them about a pod."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from kube_policy_scheduler.adapters.http.extender import connection_problem, shown_url, tls_context
from kube_policy_scheduler.adapters.http.extender_error import ExtenderError
from kube_policy_scheduler.documents.extender_settings import HttpExtenderSettings


@dataclass(frozen=True, slots=True)
class ExtenderProbe:
    """How an extender answered to GET; it is asked with POST only about pods."""

    settings: HttpExtenderSettings
    name: str
    problem: str
    """Why it did not answer; "" if it did."""
    seconds: float
    """Of the slowest answer."""
    absent: tuple[str, ...]
    """Verbs that were answered with 404."""


def probe(extenders: Sequence[HttpExtenderSettings]) -> tuple[ExtenderProbe, ...]:
    """Return how each extender answers."""

    async def run() -> list[ExtenderProbe]:
        return await asyncio.gather(*(_probe(each) for each in extenders))

    return tuple(asyncio.run(run()))


async def _probe(settings: HttpExtenderSettings) -> ExtenderProbe:
    name, slowest, absent = shown_url(settings.url_prefix), 0.0, list[str]()
    verbs = (settings.filter_verb, settings.prioritize_verb, settings.preempt_verb, settings.bind_verb)
    server_name = settings.tls_config.server_name if settings.tls_config is not None else ""
    try:
        tls = tls_context(settings)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True), trust_env=True
        ) as session:
            for verb in dict.fromkeys(filter(None, verbs)):
                began = time.perf_counter()
                url = f"{settings.url_prefix.rstrip('/')}/{verb}"
                async with asyncio.timeout(settings.http_timeout):
                    async with session.get(url, allow_redirects=False, server_hostname=server_name or None) as answer:
                        if answer.status == 404:
                            absent.append(verb)
                slowest = max(slowest, time.perf_counter() - began)
    except TimeoutError:
        problem = f"no answer within {settings.http_timeout:g} s"
        return ExtenderProbe(settings, name, problem, settings.http_timeout, ())
    except ExtenderError as error:
        return ExtenderProbe(settings, name, str(error).removeprefix(f"extender {name}: "), slowest, ())
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return ExtenderProbe(settings, name, connection_problem(error), slowest, ())
    return ExtenderProbe(settings, name, "", slowest, tuple(absent))
