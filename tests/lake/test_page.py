"""What docs/lake.md shows is what happens."""

from __future__ import annotations

from mqueue.lake.schema import LAKE
from tests.docs.test_examples import ROOT, run

PAGE = ROOT / "docs/lake.md"


def test_the_examples_print_what_they_say() -> None:
    assert run(PAGE.read_text(encoding="utf-8"), "docs/lake.md") == []


def test_the_page_names_every_column() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert [name for name in LAKE.names if not any(f"`{name}`" in row.split("|")[1] for row in rows)] == []
