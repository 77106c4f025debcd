"""The table of keys in docs/cluster.md names what the code keeps in Redis, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USED = re.compile(r"""line\.key\(\s*"([a-z_]+)\"""")
ROW = re.compile(r"^\| `([a-z_]+)(?::<[^`]*)?` \| (?:string|hash|channel) \|", re.MULTILINE)
DRAWN = re.compile(r"^    (?:channel )?(?:<prefix>:)?([a-z_]+)\b", re.MULTILINE)


def used() -> set[str]:
    modules = sorted((ROOT / "src" / "mqueue").rglob("*.py"))
    return {kind for path in modules for kind in USED.findall(path.read_text(encoding="utf-8"))}


def test_every_kind_of_key_is_in_the_table_once() -> None:
    told = ROW.findall((ROOT / "docs" / "cluster.md").read_text(encoding="utf-8"))
    assert len(told) == len(set(told))
    assert set(told) == used()
    assert "frame" in told


def test_every_key_has_its_kind_as_a_literal() -> None:
    """Else the test above would not see it."""
    calls = re.compile(r"line\.key\((?!\s*\")")
    modules = sorted((ROOT / "src" / "mqueue").rglob("*.py"))
    assert [str(path) for path in modules if calls.search(path.read_text(encoding="utf-8"))] == []


def test_every_kind_is_drawn_where_it_is_written() -> None:
    modules = [*(ROOT / "src/mqueue/cluster/redis").glob("*.py"), ROOT / "src/mqueue/cluster/wal/copies.py"]
    drawn = {kind for path in modules for kind in DRAWN.findall(path.read_text(encoding="utf-8").split('"""')[1])}
    assert used() <= drawn
