"""A ConfigMap volume as the kubelet writes it, for tests.

    volume = ConfigMapVolume(tmp_path / "policies")
    volume.update({"a.policy": "filter true"})

Each update is a new generation folder, swapped in with one rename of the link `..data`; the visible names are
links through it. Kubelets differ in whether the visible links are made before or after the swap.
"""

from __future__ import annotations

import datetime
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path


class ConfigMapVolume:
    """One mounted ConfigMap, written by us in the kubelet's place."""

    def __init__(self, path: Path, *, links_first: bool = False) -> None:
        self.path = path
        self._links_first = links_first
        path.mkdir(parents=True, exist_ok=True)

    def update(self, files: Mapping[str, str | bytes]) -> None:
        """Replace the whole content, as after `kubectl apply` of a changed ConfigMap."""
        data = self.path / "..data"
        old = self.path / data.readlink() if data.is_symlink() else None
        contents = {name: text if isinstance(text, bytes) else text.encode() for name, text in files.items()}
        if old is not None and contents == {file.name: file.read_bytes() for file in old.iterdir()}:
            return  # the kubelet leaves an unchanged payload alone
        stamp = datetime.datetime.now(tz=datetime.UTC).strftime("..%Y_%m_%d_%H_%M_%S.")
        new = Path(tempfile.mkdtemp(prefix=stamp, dir=self.path))
        new.chmod(0o755)
        for name, content in contents.items():
            file = new / name
            file.write_bytes(content)
            file.chmod(0o644)
        if self._links_first:
            self._make_links(contents)
        swap = self.path / "..data_tmp"
        swap.symlink_to(new.name)
        swap.rename(data)
        if not self._links_first:
            self._make_links(contents)
        for entry in self.path.iterdir():
            if not entry.name.startswith("..") and entry.name not in contents:
                entry.unlink()
        if old is not None:
            shutil.rmtree(old)

    def _make_links(self, names: Mapping[str, bytes]) -> None:
        for name in names:
            link = self.path / name
            if not link.is_symlink():
                link.symlink_to(Path("..data") / name)
