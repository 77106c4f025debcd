"""`python -m benchmarks.spark`: the data pipeline, with a real Spark; print a table, write JSON lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks import harness, spark_archive, spark_scan, spark_write
from benchmarks.calibration import speed
from benchmarks.disk import file_system, home
from benchmarks.harness import Result
from benchmarks.spark_place import FULL, LARGE, QUICK, Place, Sizes, place

RESULTS = Path(__file__).parent / "results" / "spark.json"


@dataclass(frozen=True)
class Benchmark:
    name: str
    about: str
    run: Callable[[Place, Sizes], Iterator[Result]]


BENCHMARKS = (
    Benchmark("spark/scan", "a topic through the source, against Parquet and against tuples", spark_scan.scan),
    Benchmark("spark/write", "rows through the sink, against a writer of single rows", spark_write.write),
    Benchmark("spark/archive", "into a lake, while others publish", spark_archive.beside),
    Benchmark("spark/round-trip", "archived, dropped by retention, replayed", spark_archive.round_trip),
)


def main(words: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 even if a row falls short: this measures, it does not judge a build."""
    asked = _parser().parse_args(words)
    chosen = [one for one in BENCHMARKS if not asked.only or any(name in one.name for name in asked.only)]
    if asked.list:
        for one in chosen:
            print(f"{one.name:<20} {one.about}")
        return 0
    if not chosen:
        print(f"no benchmark is named like {', '.join(asked.only)}; see --list", file=sys.stderr)
        return 2
    _measure(chosen, QUICK if asked.quick else LARGE if asked.large else FULL, asked.json)
    return 0


def _measure(chosen: Sequence[Benchmark], sizes: Sizes, path: Path) -> None:
    machine = {**harness.machine(harness.FULL), "profile": asdict(sizes), "file_system": file_system(home())}
    lines = [{**machine, "pyspark": version("pyspark"), "speed": speed()}]
    print(f"the machine is at {lines[0]['speed']:.2f} of its speed; best rounds are shown, ratios are of best rounds")
    print(harness.HEADER)
    with place() as here:
        for one in chosen:
            print(f"{one.name}: {one.about}", flush=True)
            for result in one.run(here, sizes):
                print(harness.as_line(result), flush=True)
                lines.append(harness.as_json(one.name, result))
    harness.write(path, lines)
    verdicts = [line.get("verdict") for line in lines]
    print(f"{verdicts.count('ok')} ok, {verdicts.count('short')} short")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench-spark ARGS=…", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes, about a minute in all")
    size.add_argument("--large", action="store_true", help="10,000,000 messages are archived, dropped and replayed")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="those whose name contains this")
    parser.add_argument("--list", action="store_true", help="what there is")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the JSON lines go")
    return parser


if __name__ == "__main__":
    sys.exit(main())
