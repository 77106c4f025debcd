"""Every format of a lake runs the same tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqueue.lake import FORMATS, Lake, open_lake


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(format: str, tmp_path: Path) -> Callable[[], Lake]:
    """Opens the lake of the test, as another process would."""
    return lambda: open_lake(str(tmp_path / "lake"), format, create=True)


@pytest.fixture
def lake(opened: Callable[[], Lake]) -> Lake:
    return opened()
