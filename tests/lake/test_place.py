"""Where a lake is, while others change what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from mqueue.lake.place import Place


class Appearing:
    """Directories that appear just while somebody lists them, so many times: pyarrow takes that for an error."""

    def __init__(self, times: int) -> None:
        self.left = times

    def get_file_info(self, selector: fs.FileSelector) -> Any:
        if self.left:
            self.left -= 1
            raise FileNotFoundError(f"Cannot list directory {selector.base_dir!r}")
        return fs.LocalFileSystem().get_file_info(selector)


def place(root: Path, times: int) -> Place:
    found = Place(str(root))
    found._files = (Appearing(times), str(root))
    return found


def test_a_directory_that_appears_while_it_is_listed(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    assert place(tmp_path, 2).names() == ["one"]
    assert [(name, size) for name, size, _ in place(tmp_path, 2).walk()] == [("one", 1)]


def test_a_directory_that_cannot_be_listed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        place(tmp_path, 1000).names()


def test_no_directory(tmp_path: Path) -> None:
    assert Place(str(tmp_path / "none")).names() == []
    assert list(Place(str(tmp_path / "none")).walk()) == []
