"""Reads the policies of one directory whole, as one generation. Knows files, not what they say."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path

import msgspec

from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof, ProofError

SUFFIX = ".policy"
MAX_FILE_BYTES = 1 << 20
"""A ConfigMap holds at most 1 MiB in all; a larger file is not a policy."""
MAX_FILES = 1000
"""So that a wrong directory is an error, not minutes of reading."""
MAX_BYTES = 2 << 20
"""Of all files together: twice what a ConfigMap can hold, and seconds of parsing."""
ATTEMPTS = 50
"""Readings of one directory that may be overtaken by changes. The kubelet makes about one change a minute; what is
still not there after this many (a few milliseconds) is not being changed but a link to nothing."""

_KUBELET_LINK = "..data"


class PolicySources(msgspec.Struct, frozen=True):
    """All policies of one generation: what is compiled together and swapped together."""

    files: tuple[tuple[str, str], ...]
    """(file name, text), sorted by name."""
    hash: str
    """Of names and contents: the same anywhere, whatever the folder is called."""

    @classmethod
    def of(cls, files: dict[str, str]) -> PolicySources:
        """Make sources from texts by file name."""
        ordered = tuple(sorted(files.items()))
        digest = blake2b(digest_size=8)
        for name, text in ordered:
            for part in (name.encode(), text.encode()):
                digest.update(len(part).to_bytes(8, "big"))
                digest.update(part)
        return cls(files=ordered, hash=digest.hexdigest())


class PolicySourcesError(Exception):
    """The policies cannot be read; the text names the file and what to do."""


class FolderLimits(msgspec.Struct, frozen=True):
    """How much a folder of policies may hold."""

    files: int = MAX_FILES
    total_bytes: int = MAX_BYTES
    may_be_empty: bool = False
    """Whether a folder without policies is a set of none, and no error."""


LIMITS = FolderLimits()
OWNER_LIMITS = FolderLimits(files=50, total_bytes=256 << 10, may_be_empty=True)
"""Of one owner among several: an eighth of the bytes, and who has no policies leaves the pods to others."""


def read_policies(path: Path, *, proof: PolicyProof | None = None, limits: FolderLimits = LIMITS) -> PolicySources:
    """Read a policy file, or every `*.policy` file of a directory, without its sub-directories.

    In a volume that the kubelet writes, all files come from one whole generation: the link `..data` is resolved
    once, everything is read behind it, and it is read again where the link moved meanwhile.

    Args:
        path: the file or the directory.
        proof: what has to vouch for them, in the same generation; None: nothing.
        limits: of the folder.

    Raises:
        PolicySourcesError: nothing there, unreadable, not UTF-8, too large, no policy at all, or no proof.
    """
    shown, vanished = shown_name(str(path)), ""
    for _ in range(ATTEMPTS):
        try:
            return _read_once(path, proof, limits, shown=shown)
        except FileNotFoundError as error:
            if not os.path.exists(path):  # noqa: PTH110  (Path.exists raises)
                raise PolicySourcesError(f"{shown} does not exist: expected a directory of {SUFFIX} files") from None
            vanished = shown_name(str(error.filename))
        except (OSError, ValueError) as error:  # ValueError: a path that no system has
            raise PolicySourcesError(f"cannot read {shown}: {_reason(error)}") from error
    raise PolicySourcesError(f"cannot read {vanished}: it was listed {ATTEMPTS} times, but did not exist")


def policies_of_config_map(
    data: Mapping[str, str],
    binary_data: Mapping[str, bytes],
    *,
    shown: str,
    proof: PolicyProof | None = None,
    limits: FolderLimits = LIMITS,
) -> PolicySources:
    """Return the policies that a volume of a ConfigMap would hold, under the rules of `read_policies`.

    Args:
        data: entries in UTF-8.
        binary_data: the others, decoded from base64.
        shown: the ConfigMap's name, for messages.
        proof: what has to vouch for them; None: nothing.
        limits: of what it may hold.

    Raises:
        PolicySourcesError: as `read_policies`.
    """
    entries = {**{name: text.encode() for name, text in data.items()}, **binary_data}
    contents = {name: entries[name] for name in _checked_names(entries, limits, shown=shown)}
    if sum(map(len, contents.values())) > limits.total_bytes:
        raise PolicySourcesError(f"{shown} contains more than {limits.total_bytes >> 10:,} KiB of policies")
    if proof is not None:
        _check(proof, contents, {name: entries[name] for name in proof.files if name in entries}, shown=shown)
    return PolicySources.of({name: _decoded(content, shown=name) for name, content in contents.items()})


def _check(proof: PolicyProof, contents: Mapping[str, bytes], proofs: Mapping[str, bytes], *, shown: str) -> None:
    try:
        proof.check(contents, proofs)
    except ProofError as error:
        raise PolicySourcesError(f"{shown}: {error}") from error


def _read_once(path: Path, proof: PolicyProof | None, limits: FolderLimits, *, shown: str) -> PolicySources:
    if not path.is_dir():
        if proof is not None:
            raise PolicySourcesError(f"{shown} is a file: policies with checksums need a directory")
        _check_name(path.name, shown=shown)
        return PolicySources.of({path.name: _decoded(_content(path, shown=shown), shown=shown)})
    link = path / _KUBELET_LINK
    if not link.is_symlink():
        return _read_folder(path, proof, limits, shown=shown)
    # resolved once: the kubelet swaps the link, and two look-ups could see two generations
    folder = Path(os.path.realpath(link, strict=True))
    try:
        return _read_folder(folder, proof, limits, shown=shown)
    finally:
        # an old generation is deleted file by file once the link has left it: what was read, or not found,
        # counts only if the link did not move meanwhile
        if Path(os.path.realpath(link, strict=True)) != folder:
            raise FileNotFoundError(errno.ENOENT, "overtaken by a new generation", str(link))


def _read_folder(folder: Path, proof: PolicyProof | None, limits: FolderLimits, *, shown: str) -> PolicySources:
    with os.scandir(folder) as entries:
        names = _checked_names((entry.name for entry in entries), limits, shown=shown)
    contents, room = {}, limits.total_bytes
    for name in names:
        contents[name] = _content(folder / name, shown=f"{shown}/{name}")
        room -= len(contents[name])
        if room < 0:
            raise PolicySourcesError(
                f"{shown} contains more than {limits.total_bytes >> 10:,} KiB of policies: is this the right folder?"
            )
    if proof is not None:
        there = [name for name in proof.files if (folder / name).exists()]
        _check(proof, contents, {name: _content(folder / name, shown=f"{shown}/{name}") for name in there}, shown=shown)
    return PolicySources.of({name: _decoded(content, shown=f"{shown}/{name}") for name, content in contents.items()})


def is_policy(name: str) -> bool:
    """Tell whether a file of this name is one that is read."""
    return name.endswith(SUFFIX) and not name.startswith(".")


def _checked_names(names: Iterable[str], limits: FolderLimits, *, shown: str) -> list[str]:
    found, number = [], 0
    for name in filter(is_policy, names):
        number += 1
        if number <= limits.files:  # a folder may hold millions
            _check_name(name, shown=f"{shown}/{shown_name(name)}")
            found.append(name)
    if not found and not limits.may_be_empty:
        raise PolicySourcesError(f"{shown} contains no {SUFFIX} file")
    if number > limits.files:
        raise PolicySourcesError(f"{shown} contains {number} {SUFFIX} files; at most {limits.files} are allowed")
    return sorted(found)


def _check_name(name: str, *, shown: str) -> None:
    """Refuse a name that no log, Event or status page could show as it is."""
    if not name.isprintable():  # a byte that is not UTF-8 is half a surrogate pair here
        problem = "contains control characters" if _is_utf8(name) else "is not UTF-8"
        raise PolicySourcesError(f"the file name {shown} {problem}: rename the file")


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown_name(name: str) -> str:
    """Return a file's name for people: bytes that are not UTF-8, and control characters, as `\\xff`."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _content(path: Path, *, shown: str) -> bytes:
    try:
        # a pipe that someone calls x.policy would block for ever without O_NONBLOCK
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise PolicySourcesError(f"{shown} is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise  # overtaken by a change
    except OSError as error:
        raise PolicySourcesError(f"cannot read {shown}: {_reason(error)}") from error
    return content


def _decoded(content: bytes, *, shown: str) -> str:
    if len(content) > MAX_FILE_BYTES:
        raise PolicySourcesError(f"{shown} is larger than {MAX_FILE_BYTES >> 10} KiB: not a policy")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicySourcesError(
            f"{shown}:{line}: byte 0x{content[error.start]:02x} is not UTF-8: save the file as UTF-8"
        ) from error


def subpath_mounts(path: Path, *, mountinfo: str) -> tuple[Path, ...]:
    """Return policy files or directories that a pod mounts with `subPath`, which the kubelet never updates.

    Args:
        path: the policy file or directory.
        mountinfo: the text of `/proc/self/mountinfo`.
    """
    found = []
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) < 5:
            continue
        root, point = _unescaped(fields[3]), Path(_unescaped(fields[4]))
        of_generation = re.search(r"/\.\.\d{4}_\d\d_\d\d_", root) is not None
        inside = point.parent == path and point.suffix == SUFFIX
        if inside or (point == path and (of_generation or point.suffix == SUFFIX)):
            found.append(point)
    return tuple(found)


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _reason(error: OSError | ValueError) -> str:
    return ((error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__).lower()
