"""When a fault strikes."""

from __future__ import annotations

from tests.integration.front import Exchange, Fault, Plan

UNSETTLED = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
"""Refusals that say nothing of the request."""


def for_each_pod_once(fault: Fault, verb: str, resource: str) -> Plan:
    """Strike the first request of a kind about every pod."""
    struck: set[str] = set()

    def plan(exchange: Exchange) -> Fault | None:
        if not exchange.is_about(verb, resource) or exchange.name in struck:
            return None
        struck.add(exchange.name)
        return fault

    return plan


def first(number: int, fault: Fault, verb: str, resource: str) -> Plan:
    """Strike the first requests of a kind."""
    left = [number]

    def plan(exchange: Exchange) -> Fault | None:
        if not exchange.is_about(verb, resource) or not left[0]:
            return None
        left[0] -= 1
        return fault

    return plan
