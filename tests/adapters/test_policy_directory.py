"""Policies from a directory: only whole generations, for any writer of the directory."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import operator
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.files import folder_watch, policy_directory, policy_sources
from kube_policy_scheduler.adapters.files.policy_directory import PolicyDirectory
from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.files.policy_sources import (
    LIMITS,
    FolderLimits,
    PolicySources,
    PolicySourcesError,
    read_policies,
    subpath_mounts,
)
from tests.fakes.configmap_volume import ConfigMapVolume


class Delivered:
    """Collects what was delivered and waits for something."""

    def __init__(self) -> None:
        self.all: list[PolicySources | PolicySourcesError] = []
        self._more = asyncio.Event()

    def __call__(self, found: PolicySources | PolicySourcesError) -> None:
        self.all.append(found)
        self._more.set()

    @property
    def last(self) -> dict[str, str] | str:
        found = self.all[-1]
        return dict(found.files) if isinstance(found, PolicySources) else str(found)

    async def until(self, wanted: Callable[[dict[str, str] | str], bool], *, seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while not (self.all and wanted(self.last)):
                self._more.clear()
                await self._more.wait()


def error_of(path: Path, limits: FolderLimits = LIMITS) -> str:
    with pytest.raises(PolicySourcesError) as raised:
        read_policies(path, limits=limits)
    return str(raised.value)


# --- reading -----------------------------------------------------------------------------------------


def test_a_directory_is_read_in_name_order_without_what_is_not_a_policy(tmp_path: Path) -> None:
    for name in ("b.policy", "a.policy", "notes.txt", ".hidden.policy", "a.policy~"):
        (tmp_path / name).write_text(name)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.policy").write_text("not read")
    assert read_policies(tmp_path).files == (("a.policy", "a.policy"), ("b.policy", "b.policy"))


def test_a_single_file_is_a_generation_of_one(tmp_path: Path) -> None:
    file = tmp_path / "web.policy"
    file.write_text("filter true\n")
    assert read_policies(file).files == (("web.policy", "filter true\n"),)


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_bytes(b"\xef\xbb\xbffilter true")
    assert read_policies(tmp_path).files == (("a.policy", "filter true"),)


@given(
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
)
def test_the_hash_is_of_names_and_contents(one: dict[str, str], other: dict[str, str]) -> None:
    reordered = dict(reversed(one.items()))
    assert PolicySources.of(one).hash == PolicySources.of(reordered).hash
    assert (PolicySources.of(one).hash == PolicySources.of(other).hash) == (one == other)


def test_each_unreadable_input_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent, empty, folder = tmp_path / "absent", tmp_path / "empty", tmp_path / "folder"
    empty.mkdir()
    folder.mkdir()
    assert error_of(absent) == f"{absent} does not exist: expected a directory of .policy files"
    assert error_of(empty) == f"{empty} contains no .policy file"

    file = folder / "a.policy"
    file.write_bytes(b"filter true\nscore \xff\n")
    assert error_of(folder) == f"{file}:2: byte 0xff is not UTF-8: save the file as UTF-8"
    file.write_bytes(b"#" * (1 << 20))
    assert len(read_policies(folder).files[0][1]) == 1 << 20
    file.write_bytes(b"#" * ((1 << 20) + 1))
    assert error_of(folder) == f"{file} is larger than 1024 KiB: not a policy"
    file.unlink()
    os.mkfifo(file)
    assert error_of(folder) == f"{file} is not a regular file"
    file.unlink()
    file.mkdir()
    assert error_of(folder) == f"{file} is not a regular file"
    file.rmdir()
    file.symlink_to("loop.policy")
    (folder / "loop.policy").symlink_to("a.policy")
    assert error_of(folder) == f"cannot read {file}: too many levels of symbolic links"
    (folder / "loop.policy").unlink()
    assert error_of(folder) == f"cannot read {file}: it was listed 50 times, but did not exist"

    (folder / "a.policy").unlink()
    for name in (b"caf\xe9.policy", b"two\nlines.policy"):
        odd = os.fsencode(folder) + b"/" + name
        Path(os.fsdecode(odd)).touch()
        shown, why = ("caf\\xe9", "is not UTF-8") if b"\xe9" in name else ("two\\nlines", "contains control characters")
        assert error_of(folder) == f"the file name {folder}/{shown}.policy {why}: rename the file"
        assert error_of(Path(os.fsdecode(odd))) == f"the file name {folder}/{shown}.policy {why}: rename the file"
        Path(os.fsdecode(odd)).unlink()
    assert error_of(tmp_path / "\0" / "x") == f"cannot read {tmp_path}/\\x00/x: embedded null byte"

    small = FolderLimits(files=1, total_bytes=1 << 20)
    for name in ("a.policy", "b.policy"):
        (folder / name).write_bytes(b"#" * (1 << 19))
    assert len(read_policies(folder).files) == 2
    (folder / "c.policy").write_text("#")
    text = f"{folder} contains more than 1,024 KiB of policies: is this the right folder?"
    assert error_of(folder, msgspec.structs.replace(small, files=3)) == text

    for name in ("b.policy", "c.policy"):
        (empty / name).write_text("")
    assert error_of(empty, small) == f"{empty} contains 2 .policy files; at most 1 are allowed"


def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.policy"
    file.write_text("")
    file.chmod(0)
    if os.geteuid() == 0:
        # root may read everything: let the system say what it says to others
        real = os.open

        def refuse(path: Path, *flags: int) -> int:
            if path == file:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return real(path, *flags)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "open", refuse)
            assert error_of(tmp_path) == f"cannot read {file}: permission denied"
    else:
        assert error_of(tmp_path) == f"cannot read {file}: permission denied"


@pytest.mark.parametrize("links_first", [False, True], ids=["links after the swap", "links before the swap"])
def test_a_reader_never_sees_two_generations_at_once(tmp_path: Path, links_first: bool) -> None:
    volume = ConfigMapVolume(tmp_path / "policies", links_first=links_first)

    def generation(number: int) -> dict[str, str]:
        # names change too: a file of one generation only is never seen with a file of another
        return {"a.policy": str(number), f"only-{number % 3}.policy": str(number), "z.policy": str(number)}

    volume.update(generation(0))
    stop = threading.Event()

    def swap() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            volume.update(generation(number))
            stop.wait(0.001)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        seen: set[int] = set()
        while len(seen) < 30:
            files = dict(read_policies(volume.path).files)
            number = int(files["a.policy"])
            assert files == generation(number)
            seen.add(number)
    finally:
        stop.set()
        swapper.join()


def test_a_generation_that_is_being_deleted_is_not_taken_for_a_smaller_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = ConfigMapVolume(tmp_path)
    volume.update({"a.policy": "old", "b.policy": "old"})
    real = policy_sources._read_folder

    def overtaken(folder: Path, proof: PolicyProof | None, limits: FolderLimits, *, shown: Path) -> PolicySources:
        """The kubelet swaps, and has deleted one file of the old generation when we list it."""
        monkeypatch.setattr(policy_sources, "_read_folder", real)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shutil, "rmtree", lambda old: (old / "b.policy").unlink())
            volume.update({"a.policy": "new", "b.policy": "new"})
        return real(folder, proof, limits, shown=shown)

    monkeypatch.setattr(policy_sources, "_read_folder", overtaken)
    assert dict(read_policies(tmp_path).files) == {"a.policy": "new", "b.policy": "new"}


MOUNTINFO = r"""
22 1 0:20 / / rw - overlay overlay rw
30 22 8:1 /pods/1/volumes/kubernetes.io~configmap/p /etc/whole rw - ext4 /dev/sda1 rw
31 22 8:1 /pods/1/volumes/kubernetes.io~configmap/p/..2026_11_21_08_40_00.12/a.policy /etc/files/a.policy rw - ext4 /dev/sda1 rw
32 22 8:1 /pods/1/volumes/kubernetes.io~configmap/p/..2026_11_21_08_40_00.12/team /etc/with\040space rw - ext4 /dev/sda1 rw
33 22 8:1 /pods/1/other /etc/files/notes.txt rw - ext4 /dev/sda1 rw
"""  # noqa: E501


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/etc/whole", []),
        ("/etc/files", ["/etc/files/a.policy"]),
        ("/etc/files/a.policy", ["/etc/files/a.policy"]),
        ("/etc/with space", ["/etc/with space"]),
        ("/etc/elsewhere", []),
    ],
)
def test_mounts_that_the_kubelet_never_updates_are_recognised(path: str, found: list[str]) -> None:
    assert subpath_mounts(Path(path), mountinfo=MOUNTINFO) == tuple(Path(one) for one in found)


# --- watching ----------------------------------------------------------------------------------------

NEVER = 3600.0
"""A poll interval that shows that an event was seen."""


@pytest.mark.parametrize("links_first", [False, True], ids=["links after the swap", "links before the swap"])
async def test_a_hundred_quick_swaps_end_with_the_last_and_none_is_mixed(tmp_path: Path, links_first: bool) -> None:
    volume = ConfigMapVolume(tmp_path / "policies", links_first=links_first)
    volume.update({"a.policy": "0", "b.policy": "0"})
    delivered = Delivered()
    async with PolicyDirectory(volume.path, deliver=delivered, poll_seconds=NEVER):
        assert delivered.last == {"a.policy": "0", "b.policy": "0"}
        for number in range(1, 101):
            broken = number % 10 == 5
            text = b"\xff" if broken else str(number)
            await asyncio.to_thread(volume.update, {"a.policy": text, "b.policy": str(number), "c.policy": "c"})
            if number % 20 == 0:
                await delivered.until(
                    partial(operator.eq, {"a.policy": str(number), "b.policy": str(number), "c.policy": "c"})
                )
    assert delivered.last == {"a.policy": "100", "b.policy": "100", "c.policy": "c"}
    for found in delivered.all:
        if isinstance(found, PolicySources):
            files = dict(found.files)
            assert files["a.policy"] == files["b.policy"]


async def test_a_swap_arrives_soon_and_once(tmp_path: Path) -> None:
    volume = ConfigMapVolume(tmp_path)
    volume.update({"a.policy": "0"})
    delivered = Delivered()
    waits = []
    async with PolicyDirectory(volume.path, deliver=delivered, poll_seconds=NEVER):
        for number in range(1, 11):
            volume.update({"a.policy": str(number)})
            started = time.monotonic()
            await delivered.until(partial(operator.eq, {"a.policy": str(number)}))
            waits.append(time.monotonic() - started)
    print(f"from the swap to the delivery: {1000 * sorted(waits)[5]:.0f} ms (median)")
    assert len(delivered.all) == 11
    assert max(waits) < 10


async def test_an_unreadable_directory_is_reported_once_and_read_again_later(tmp_path: Path) -> None:
    volume = ConfigMapVolume(tmp_path)
    volume.update({"a.policy": "good"})
    delivered = Delivered()
    async with PolicyDirectory(volume.path, deliver=delivered, poll_seconds=0.05):
        volume.update({"a.policy": b"\xff"})
        await delivered.until(lambda last: "not UTF-8" in last)
        volume.update({"a.policy": "good"})
        await delivered.until(lambda last: last == {"a.policy": "good"})
    assert len(delivered.all) == 3


async def test_a_plain_directory_and_a_single_file_are_watched_too(tmp_path: Path) -> None:
    file = tmp_path / "a.policy"
    file.write_text("1")
    whole, single = Delivered(), Delivered()
    async with (
        PolicyDirectory(tmp_path, deliver=whole, poll_seconds=NEVER),
        PolicyDirectory(file, deliver=single, poll_seconds=NEVER),
    ):
        # as editors save: a new file renamed over the old
        (tmp_path / "a.policy.swp").write_text("2")
        (tmp_path / "a.policy.swp").rename(file)
        (tmp_path / "b.policy").write_text("b")
        await whole.until(lambda last: last == {"a.policy": "2", "b.policy": "b"})
        await single.until(lambda last: last == {"a.policy": "2"})
        file.write_text("3")
        await whole.until(lambda last: last == {"a.policy": "3", "b.policy": "b"})
        await single.until(lambda last: last == {"a.policy": "3"})


async def test_a_directory_that_comes_later_goes_and_comes_again_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "policies"
    delivered = Delivered()
    async with PolicyDirectory(path, deliver=delivered, poll_seconds=0.05) as directory:
        assert "does not exist" in delivered.last
        ConfigMapVolume(path).update({"a.policy": "1"})
        await delivered.until(lambda last: last == {"a.policy": "1"})
        shutil.rmtree(path)
        await delivered.until(lambda last: "does not exist" in last)
        volume = ConfigMapVolume(path)
        volume.update({"a.policy": "2"})
        await delivered.until(lambda last: last == {"a.policy": "2"})
        # from the second delivery on, only an event can tell of a change
        directory._poll_seconds = NEVER
        for text in ("3", "4", "5"):
            volume.update({"a.policy": text})
            await delivered.until(partial(operator.eq, {"a.policy": text}))


async def test_without_inotify_it_polls_and_reports_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def exhausted() -> None:
        raise OSError(errno.EMFILE, "inotify instance limit reached")

    monkeypatch.setattr(folder_watch, "Observer", exhausted)
    volume = ConfigMapVolume(tmp_path)
    volume.update({"a.policy": "1"})
    delivered = Delivered()
    async with PolicyDirectory(tmp_path, deliver=delivered, poll_seconds=0.05):
        volume.update({"a.policy": "2"})
        await delivered.until(lambda last: last == {"a.policy": "2"})
    assert [record.message for record in caplog.records] == [
        f"cannot watch {tmp_path} (inotify instance limit reached); polling every 1 s instead"
    ]


def _odd_name(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.policy")).touch()


def _no_policy(folder: Path) -> None:
    (folder / "a.policy").unlink()


def _a_ring_of_links(folder: Path) -> None:
    (folder / "b.policy").symlink_to("b.policy")


def _a_folder(folder: Path) -> None:
    (folder / "b.policy").mkdir()


def _a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "b.policy")


def _a_link_to_nothing(folder: Path) -> None:
    (folder / "b.policy").symlink_to("gone.policy")


def _a_device(folder: Path) -> None:
    (folder / "b.policy").symlink_to("/dev/zero")


def _an_endless_file(folder: Path) -> None:
    with (folder / "b.policy").open("wb") as file:
        file.truncate(1 << 40)


def _not_text(folder: Path) -> None:
    (folder / "b.policy").write_bytes(bytes(range(256)))


def _a_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(folder):
        listening.bind("b.policy")


def _a_generation_that_is_gone(folder: Path) -> None:
    (folder / "..data").symlink_to("..gone")


def _a_ring_of_generations(folder: Path) -> None:
    (folder / "..data").symlink_to("..data")


ODD = [
    _odd_name,
    _no_policy,
    _a_ring_of_links,
    _a_folder,
    _a_pipe,
    _a_link_to_nothing,
    _a_device,
    _an_endless_file,
    _not_text,
    _a_socket,
    _a_generation_that_is_gone,
    _a_ring_of_generations,
]


@pytest.mark.parametrize("spoil", ODD)
async def test_no_folder_content_ends_the_watch(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "a.policy").write_text("good")
    delivered = Delivered()
    async with PolicyDirectory(folder, deliver=delivered, poll_seconds=0.05):
        spoil(folder)
        await delivered.until(lambda last: isinstance(last, str))
        print(delivered.last)
        assert str(folder) in delivered.last
        assert str(delivered.last).isprintable()
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "a.policy").write_text("better")
        await delivered.until(lambda last: last == {"a.policy": "better"})


async def test_an_error_while_reading_is_reported_and_watching_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.policy").write_text("1")
    real = read_policies

    def broken(path: Path, **given: Any) -> PolicySources:
        raise ZeroDivisionError("a fault")

    delivered = Delivered()
    async with PolicyDirectory(tmp_path, deliver=delivered, poll_seconds=0.02):
        monkeypatch.setattr(policy_directory, "read_policies", broken)
        await delivered.until(lambda last: last == f"cannot read {tmp_path}: unexpected ZeroDivisionError: a fault")
        monkeypatch.setattr(policy_directory, "read_policies", real)
        (tmp_path / "a.policy").write_text("2")
        await delivered.until(lambda last: last == {"a.policy": "2"})
    assert "ZeroDivisionError" in caplog.text


async def test_a_file_system_that_does_not_answer_is_reported_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the start nor the end of the process waits for it."""
    (tmp_path / "a.policy").write_text("1")
    answers = threading.Event()
    real = read_policies

    def hanging(path: Path, **given: Any) -> PolicySources:
        answers.wait()
        return real(path, **given)

    monkeypatch.setattr(policy_directory, "read_policies", hanging)
    delivered = Delivered()
    async with PolicyDirectory(tmp_path, deliver=delivered, poll_seconds=0.02, slow_seconds=0.1):
        assert delivered.last == f"{tmp_path} cannot be read: no answer within 0.1 s"
        answers.set()
        await delivered.until(lambda last: last == {"a.policy": "1"})
        answers.clear()
        (tmp_path / "a.policy").write_text("2")
        await delivered.until(lambda last: isinstance(last, str))
    answers.set()


async def test_its_own_reading_triggers_no_further_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.policy").write_text("1")
    readings = 0
    real = read_policies

    def count(path: Path, **given: Any) -> PolicySources:
        nonlocal readings
        readings += 1
        return real(path, **given)

    monkeypatch.setattr(policy_directory, "read_policies", count)
    delivered = Delivered()
    async with PolicyDirectory(tmp_path, deliver=delivered, poll_seconds=NEVER):
        (tmp_path / "a.policy").write_text("2")
        await delivered.until(lambda last: last == {"a.policy": "2"})
        before = readings
        await asyncio.sleep(0.3)  # six debounce times: a loop of its own making would show
        assert readings == before


async def test_a_subpath_mount_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    policies = tmp_path / "policies"
    ConfigMapVolume(policies).update({"a.policy": "1"})
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(f"31 22 8:1 /x/..2026_11_21_08_40_00.1/a.policy {policies}/a.policy rw - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(policy_directory, "MOUNTINFO", mountinfo)
    caplog.set_level(logging.WARNING)
    async with PolicyDirectory(policies, deliver=Delivered()):
        pass
    assert [record.message for record in caplog.records] == [
        f"{policies}/a.policy is mounted with subPath, which the kubelet never updates; mount the whole volume instead"
    ]


async def test_a_receiver_that_fails_does_not_end_the_watching(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    volume = ConfigMapVolume(tmp_path)
    volume.update({"a.policy": "1"})
    delivered = Delivered()

    def receive(found: PolicySources | PolicySourcesError) -> None:
        delivered(found)
        if delivered.last == {"a.policy": "1"}:
            raise RuntimeError("receiver")

    async with PolicyDirectory(tmp_path, deliver=receive, poll_seconds=NEVER):
        volume.update({"a.policy": "2"})
        await delivered.until(lambda last: last == {"a.policy": "2"})
    assert "unexpected error while activating" in caplog.text
