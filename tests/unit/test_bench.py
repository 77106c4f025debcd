"""The benchmarks run, and write what a machine can read. How fast anything is, is not looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import disk, harness
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.disk import Work, against_bare
from benchmarks.footprint import Weight
from benchmarks.harness import Rates, Result, race
from mqueue import Broker


@pytest.mark.parametrize("family", dict.fromkeys(one.name.partition("/")[0] for one in BENCHMARKS))
def test_every_benchmark_writes_its_rows(family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out" / "bench.json"
    assert main(["--quick", "--depth", "2000", "--only", f"{family}/", "--json", str(path)]) == 0
    machine, *results = [json.loads(line) for line in path.read_text().splitlines()]
    assert machine["kind"] == "machine"
    assert {"python", "cpus", "profile", "commit", "calibration_reference_seconds"} <= set(machine)
    assert machine["profile"]["depth"] == 2000
    assert machine["file_system"] == disk.file_system(disk.home())
    assert {line["benchmark"] for line in results} == {
        one.name for one in BENCHMARKS if one.name.startswith(f"{family}/")
    }
    for line in results:
        assert line["kind"] == "result"
        assert line["value"] > 0, line
        assert line["normalised"] is None or line["normalised"] > 0, line
        assert line["verdict"] == "-" if line["target"] is None else line["verdict"] in ("ok", "short"), line
    shown = capsys.readouterr().out
    assert all(line["name"] in shown for line in results)
    assert len({(line["benchmark"], line["name"]) for line in results}) == len(results), "a name stands for one row"
    assert not list(disk.home().glob(".mqueue-bench-*")), "what was written is cleaned up"


def test_only_narrows_and_list_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bench.json"
    assert main(["--list", "--only", "memory", "--json", str(path)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["memory/queued", "memory/scheduled"]
    assert main(["--only", "nothing-like-this", "--json", str(path)]) == 2
    assert not path.exists()


def test_cases_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    class Lap:
        def __init__(self, label: str) -> None:
            self.label = label

        def round(self) -> dict[str, tuple[int, float]]:
            turns.append(self.label)
            return {"lap": (10, 2.0 if self.label == "slow" else 1.0)}

    monkeypatch.setattr(harness, "speed", lambda: 1.0)
    found = race({"slow": Lap("slow"), "fast": Lap("fast")}, rounds=2)
    assert turns == ["slow", "fast", "fast", "slow", "slow", "fast"]
    assert found.slowdown("row", "slow", "fast", "lap", 1.5).value == 2.0
    assert found.slowdown("row", "slow", "fast", "lap", 1.5).verdict == "short"


def test_work_on_disk_takes_turns_with_as_many_bare_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[tuple[str, int]] = []
    sizes: list[int] = []

    class Bare:
        def __init__(self, directory: Path, size: int, *, sync: bool) -> None:
            sizes.append(size)

        def turns(self, count: int) -> float:
            turns.append(("bare", count))
            return 1.0 * count

        def close(self) -> None: ...

    def mine(count: int) -> float:
        turns.append(("mine", count))
        end[0] += 500 * count
        return 2.0 * count

    end = [0]
    monkeypatch.setattr(disk, "Bare", Bare)
    monkeypatch.setattr(disk, "position", lambda broker: end[0])
    rate, ratio = against_bare(Work("row", 10, mine, target=6), Broker(), tmp_path, count=8, rounds=2)
    assert sizes == [500]
    assert turns == [("mine", 8), ("bare", 8), *[("bare", 2), ("mine", 2)] * 8]
    assert (rate.value, rate.verdict, ratio.value, ratio.verdict) == (5, "short", 2, "-")


def test_benchmarks_on_disk_do_not_measure_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(disk, "file_system", lambda path: "ext4")
    assert disk.home() == tmp_path
    monkeypatch.setattr(disk, "file_system", lambda path: "tmpfs")
    assert disk.home() != tmp_path


@pytest.mark.parametrize(
    ("value", "bound", "target", "verdict"),
    [(5, ">=", 5, "ok"), (4, ">=", 5, "short"), (5, "<=", 5, "ok"), (5, "<", 5, "short"), (5, "", None, "-")],
)
def test_verdicts(value: float, bound: str, target: float | None, verdict: str) -> None:
    assert Result("row", value, "ms", bound, target).verdict == verdict


def test_rates_are_held_against_the_speed_of_the_machine() -> None:
    rates = Rates()
    rates.add(100, 1.0, 1.0)
    rates.add(100, 2.0, 0.5)
    rates.add(100, 4.0, 0.25)
    shown = rates.result("row", ">=", 60)
    assert (shown.value, shown.normalised, shown.verdict) == (50, 100, "short")


def test_weight_counts_bookkeeping_and_leaves_frames_out() -> None:
    small, large, many = Broker(), Broker(), Broker()
    small.publish_many("t", [b"x"] * 2000)
    large.publish_many("t", [b"x" * 1000] * 2000)
    for _ in range(200):
        many.publish_many("t", [b"x"] * 10)
    assert Weight(small).frames == Weight(large).frames == 1
    assert Weight(many).frames == 200
    assert abs(Weight(small).bookkeeping - Weight(large).bookkeeping) < 500
    assert Weight(many).bookkeeping > Weight(small).bookkeeping
    many.receive("t", 100)
    assert Weight(many).journal > Weight(small).journal
