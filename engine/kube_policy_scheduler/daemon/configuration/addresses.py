"""Addresses on a command line: `HOST:PORT` to listen on, and URLs."""

from __future__ import annotations

import click

from kube_policy_scheduler.documents.http_url import is_http_url


def host_and_port(text: str, *, hint: str) -> tuple[str, int]:
    """Return host and port.

    Args:
        text: what was given; without a host all addresses are meant.
        hint: the option, for the message.

    Raises:
        click.BadParameter: it is no address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"expected HOST:PORT such as 0.0.0.0:10259, got {text!r}", param_hint=hint)
    return host.strip("[]") or "0.0.0.0", int(port)


def url(text: str, *, hint: str) -> str:
    """Return a URL as it is.

    Args:
        text: what was given.
        hint: the option, for the message.

    Raises:
        click.BadParameter: it is no URL.
    """
    if not is_http_url(text):
        raise click.BadParameter(f"expected a URL such as http://prometheus:9090, got {text!r}", param_hint=hint)
    return text
