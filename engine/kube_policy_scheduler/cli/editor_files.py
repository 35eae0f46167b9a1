"""The files that an editor works with: unsaved texts first, then what the disk has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kube_policy_scheduler.cli.files import TEST_SUFFIX, is_below, root_of
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_documents, read_source

POLICY_SUFFIX = ".policy"
MOST_FILES = 1_000
"""Files of one folder that are read."""
MOST_BYTES = 4 * 2**20
"""Of one file on the disk: larger ones are no policies, tests or fixtures that people edit."""


@cache
def time_zones() -> tuple[str, ...]:
    """Return the time zones of this machine by name, without those that are there for old programs only."""
    from zoneinfo import available_timezones

    return tuple(sorted(zone for zone in available_timezones() if "/" in zone or zone == "UTC"))


@dataclass(frozen=True, slots=True)
class OpenText:
    """A document that the editor has open."""

    uri: str
    version: int | None
    source: Source
    language: str
    """What the editor takes it for: `policy`, `yaml`; "" where it did not say."""


@dataclass(slots=True)
class _Kept:
    stamp: tuple[int, int]
    source: Source | None
    values: tuple[Any, ...] | None = None


@dataclass(slots=True)
class EditorFiles:
    """Open documents by name, over the files of their folders. A name is a path, or the URI of what is no file."""

    open: dict[str, OpenText] = field(default_factory=dict)
    _kept: dict[str, _Kept] = field(default_factory=dict)

    def set(self, uri: str, version: int | None, text: str, *, language: str = "") -> str:
        """Keep the text of an open document; return its name."""
        name = name_of(uri)
        before = self.open.get(name)
        language = language or (before.language if before is not None else "")
        self.open[name] = OpenText(uri, version, Source(name, text), language)
        return name

    def is_policy(self, name: str) -> bool:
        """Return whether a document is a policy: by its name, or without a file by what the editor says."""
        opened = self.open.get(name)
        return name.endswith(POLICY_SUFFIX) or (
            not is_path(name) and opened is not None and opened.language == "policy"
        )

    def close(self, uri: str) -> str:
        """Forget an open document: what the disk has counts again. Return its name."""
        name = name_of(uri)
        self.open.pop(name, None)
        return name

    def uri(self, name: str) -> str:
        """Return the URI of a name, as the editor wrote it if it did."""
        opened = self.open.get(name)
        return opened.uri if opened is not None else Path(name).as_uri() if is_path(name) else name

    def source(self, name: str) -> Source | None:
        """Return the text of a name; None where it cannot be read."""
        opened = self.open.get(name)
        return opened.source if opened is not None else self._read(name) if is_path(name) else None

    def policies(self, folder: str) -> list[Source]:
        """Return the policies of a folder, the open ones with their unsaved texts."""
        names = dict.fromkeys(self._names(folder, POLICY_SUFFIX))
        names |= dict.fromkeys(name for name in self.open if folder_of(name) == folder and self.is_policy(name))
        found = (self.source(name) for name in names)
        return [source for source in found if source is not None]

    def tests(self, folder: str) -> list[Source]:
        """Return the test files of a folder."""
        names = dict.fromkeys(self._names(folder, TEST_SUFFIX))
        names |= dict.fromkeys(n for n in self.open if folder_of(n) == folder and n.endswith(TEST_SUFFIX))
        found = (self.source(name) for name in names)
        return [source for source in found if source is not None]

    def fixtures(self, folder: str) -> Iterator[Any]:
        """Yield the values of the YAML documents of a folder: test files, recorded clusters, snapshots."""
        for suffix in (".yaml", ".yml", ".json"):
            for name in self._names(folder, suffix):
                yield from self._values(name)

    def recorded(self, folder: str) -> Iterator[Source]:
        """Yield the files of a folder that may hold a cluster, also compressed ones; test files aside."""
        for suffix in (".yaml", ".yml", ".json", ".yaml.gz", ".json.gz"):
            for name in self._names(folder, suffix):
                source = self.source(name) if not name.endswith(TEST_SUFFIX) else None
                if source is not None:
                    yield source

    def _values(self, name: str) -> tuple[Any, ...]:
        source = self._read(name)
        kept = self._kept.get(name)
        if source is None or kept is None:
            return ()
        if kept.values is None:
            try:
                kept.values = tuple(document.value for document in parse_documents(source))
            except DocumentError:
                kept.values = ()
        return kept.values

    def _names(self, folder: str, suffix: str) -> list[str]:
        if not is_path(folder):
            return []
        try:
            root = root_of(Path(folder))
            there = sorted(path for path in Path(folder).iterdir() if path.name.endswith(suffix))
            return [str(path) for path in there[:MOST_FILES] if is_below(path, root) and path.is_file()]
        except (OSError, ValueError):  # a name that is too long, or has a NUL
            return []

    def _read(self, name: str) -> Source | None:
        try:
            status = Path(name).stat()
        except (OSError, ValueError):
            self._kept.pop(name, None)
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        kept = self._kept.get(name)
        if kept is None or kept.stamp != stamp:
            source = None
            if status.st_size <= MOST_BYTES:
                try:
                    source = read_source(Path(name))
                except DocumentError:
                    source = None
            kept = self._kept[name] = _Kept(stamp, source)
        return kept.source


def name_of(uri: str) -> str:
    """Return the path of a URI of a file, another URI as it is."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    path = unquote(parts.path)
    if len(path) > 2 and path[0] == "/" and path[2] == ":":  # file:///c:/policies
        path = path[1:]
    return path


def is_path(name: str) -> bool:
    """Return whether a name is a path of the disk."""
    return "://" not in name and not name.startswith("untitled:")


def folder_of(name: str) -> str:
    """Return the folder of a name; what is no file has one of its own."""
    return str(Path(name).parent) if is_path(name) else name
