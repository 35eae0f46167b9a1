"""A list in pages, each asked for while the one before is taken over. Knows no state of what is listed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from kube_policy_scheduler.adapters.kube.client import Client
from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder, Page
from kube_policy_scheduler.adapters.kube.resources import Resource, T

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.kube.similar_items import SimilarItems

PAGE_OBJECTS = 2_000  # with 500, 10,000 pods took a quarter of a second longer
FIRST_PAGE_OBJECTS = 500  # of the first page, which shows how large objects are
PAGE_BYTES = 8 << 20  # of a page, about: decoded in 20 ms, in which nothing else runs
LIST_TIMEOUT_SECONDS = 60.0  # per page
COMPARED_FROM = 20_000  # objects of a list: decoding this many takes as long as loading what compares the others


async def pages(
    client: Client,
    resource: Resource[T],
    decoder: ObjectDecoder[T],
    *,
    limit: int | None = PAGE_OBJECTS,
    page_bytes: int = PAGE_BYTES,
    field_selector: str = "",
    label_selector: str = "",
    compare: bool = False,
    permits: asyncio.Semaphore | None = None,
) -> AsyncGenerator[Page[T]]:
    """Yield all pages. Close it with `aclosing`.

    Args:
        client: to the API server.
        resource: what is listed.
        decoder: of its objects.
        limit: objects of one page, None: all in one.
        page_bytes: of a page, about.
        field_selector: of the objects.
        label_selector: of the objects.
        compare: whether pods may come as `ListedPod`, which a long list is faster with.
        permits: one of which each request takes, shared with other lists; None: there is no limit.

    Raises:
        KubeError: a page could not be read; `Gone` where the server forgot its place between two pages.
    """
    first = FIRST_PAGE_OBJECTS * page_bytes // PAGE_BYTES
    query = {"limit": str(min(limit, first))} if limit is not None else {}
    if field_selector:
        query["fieldSelector"] = field_selector
    if label_selector:
        query["labelSelector"] = label_selector

    listed = 0
    similar: asyncio.Task[SimilarItems[Any] | None] | None = None

    async def ask() -> Page[T]:
        nonlocal listed, similar
        path = resource.collection(query=query)
        async with permits or nullcontext():
            body = await client.request("GET", path, resource=resource.label, timeout_seconds=LIST_TIMEOUT_SECONDS)
        page = decoder.page(body, similar.result() if similar is not None and similar.done() else None)
        listed += len(page.objects)
        is_long = listed + (page.metadata.remaining_item_count or 0) >= COMPARED_FROM
        if compare and similar is None and (is_long or ObjectDecoder.has_loop) and page.metadata.continue_:
            similar = asyncio.create_task(asyncio.to_thread(decoder.similar_items))
        if limit is not None and page.objects:
            query["limit"] = str(max(1, min(limit, page_bytes * len(page.objects) // len(body))))
        return page

    asked = asyncio.create_task(ask())
    try:
        while True:
            page = await asked
            query["continue"] = page.metadata.continue_
            if not page.metadata.continue_:
                yield page
                return
            asked = asyncio.create_task(ask())
            yield page
    finally:
        asked.cancel()
        if similar is not None:
            similar.cancel()
        await asyncio.gather(asked, return_exceptions=True)
