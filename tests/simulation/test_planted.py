"""Every planted bug must be caught within a small budget: a crash test that misses its bug fails the build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqueue.model.errors import Corrupt
from tests.crash import test_bit_rot as rot
from tests.crash import test_faults as faults
from tests.simulation import stormy
from tests.simulation.planted import BUGS, Bug
from tests.simulation.recall import recall, tiny
from tests.simulation.run import TIDY, simulate

SEEDS = 5
THIN = 4


def by_walk(seeds: range = range(SEEDS)) -> Iterator[str]:
    for seed in seeds:
        try:
            yield from simulate(seed, thin=THIN).violations
        except Exception as error:  # a store that stumbles over its own bug has been found out as well
            yield repr(error)


def by_tidy() -> Iterator[str]:
    return by_walk(range(TIDY, TIDY + 4 * SEEDS, 4))


def by_storm() -> Iterator[str]:
    for seed in range(SEEDS):
        for scene in stormy.SCENES:
            yield from (sentence for _, sentence in stormy.complaints(scene, seed))


def by_rot() -> Iterator[str]:
    """As it was closed, and without what spares reading the segments."""
    spared = [name for name in rot.sound().files if name.endswith(".index") or name.startswith("checkpoint-")]
    for closed in (True, False):
        files = rot.sound().files if closed else rot.without(*spared)
        for number, (name, data) in enumerate(files.items()):
            for place, (start, stop, damaged) in enumerate(rot.flips(data)):
                if place % 9 == number % 9:
                    outcome = rot.judge({**files, name: damaged}, name, start, stop, f"{name} {start}")
                    silent = (
                        (closed or name == "EPOCH") and outcome.endswith("nobody is told") and rot.untold(name, start)
                    )
                    if outcome not in ("refused", "reported") and not silent:
                        yield outcome


def by_faults() -> Iterator[str]:
    for op, nth in faults.FAULTS:
        if op == "sync":
            try:
                yield from faults.broken(op, nth)
            except AssertionError as error:
                yield repr(error)


def by_files() -> Iterator[str]:
    """What an operator may do to the files of a log."""
    try:
        if rot.shown(rot.opened(rot.without("EPOCH"))) != rot.sound().payloads:
            yield "messages are gone with EPOCH"
    except Corrupt as refusal:
        yield repr(refusal)
    last = max(name for name in rot.sound().files if name.endswith(".log"))
    try:
        rot.opened(rot.without(last))
        yield "the end of the log is gone, and nobody is told"
    except Corrupt:
        pass
    yield from rot.mingled()


def by_short(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    try:
        faults.test_a_short_write_is_written_to_its_end(folder, patch)
    except Exception as error:
        yield repr(error)


PROBES: dict[str, Callable[[], Iterator[str]]] = {
    "walk": by_walk,
    "tidy": by_tidy,
    "storm": by_storm,
    "rot": by_rot,
    "faults": by_faults,
    "files": by_files,
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rot.sound()  # made before the bug is there
    bug.plant(monkeypatch)
    with tiny(), recall():
        probe = PROBES[bug.probe]() if bug.probe in PROBES else by_short(tmp_path, monkeypatch)
        assert next(probe, ""), f"{bug.name} was not caught by {bug.probe}"


def test_without_a_bug_nothing_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with tiny(), recall():
        assert not list(by_rot())
        assert not list(by_files())
        assert not list(by_faults())
        assert not list(by_short(tmp_path, monkeypatch))
        assert not list(stormy.complaints("work", 1))
        assert not simulate(0, thin=THIN).violations
        assert not simulate(TIDY, thin=THIN).violations


def test_there_are_enough_bugs() -> None:
    assert len(BUGS) >= 25
    assert {bug.probe for bug in BUGS} == {*PROBES, "short"}
