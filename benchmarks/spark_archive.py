"""The archive while others publish, and all the way round: archived, dropped by retention, replayed out of the lake."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

from benchmarks.calibration import speed
from benchmarks.harness import Result, short
from benchmarks.spark_place import ROOT, Place, Sizes, all_there, fill, serving, values
from mqueue import Client
from mqueue.lake import open_lake
from mqueue.pipeline.jobs import archive, replay
from mqueue.pipeline.progress import progress_of

TOPIC = "orders"
PARTITIONS = 4
LAG_SECONDS_MAX = 10
_PATIENCE_SECONDS = 300


def beside(place: Place, sizes: Sizes) -> Iterator[Result]:
    """An archive that never ends, while messages are published at a fixed rate."""
    lake = place.directory / "beside"
    with serving(place.directory, "beside-data") as (server, url), Client(url) as client, ThreadPoolExecutor(1) as pool:
        fill(url, TOPIC, 1, PARTITIONS)
        settings = archive.ArchiveSettings(
            url=url, lake=str(lake), topics=(TOPIC,), continuous=True, every="1s", progress="none"
        )
        archive.run(place.spark, _once(settings), progress_of("none"))  # what starts with the first use has started
        stop = threading.Event()
        fast = speed()
        before, _ = server.usage()
        running = pool.submit(archive.run, place.spark, settings, progress_of("none"), stop)
        try:
            told = _published(url, sizes)
            ended = perf_counter()
            lag = _ends(client) - _archived(lake)
            used = server.usage()[0] - before
            while _archived(lake) < _ends(client) and perf_counter() - ended < _PATIENCE_SECONDS and running.running():
                stop.wait(0.1)
            caught_up = perf_counter() - ended
        finally:
            stop.set()
        running.result()
    rate = told["messages"] / told["seconds"]
    behind = f"at worst {told['late']:.1f} s behind its schedule"
    note = f"for {told['seconds']:.0f} s, {behind}; {used:.1f} s of the server's processor; machine at {fast:.2f}"
    yield Result("published beside the archive", rate, "msg/s", ">=", 0.98 * sizes.rate, note=note)
    note = f"{short(lag)} messages when the last was published; all were in the lake {caught_up:.1f} s later"
    yield Result("lag at the end", max(lag, 1) / sizes.rate, "s of input", "<=", LAG_SECONDS_MAX, note=note)


def round_trip(place: Place, sizes: Sizes) -> Iterator[Result]:
    """Archived, dropped, replayed: what comes back is compared byte by byte with what went in."""
    lake = place.directory / "round-trip"
    rows = sizes.replayed
    with serving(place.directory, "round-trip-data") as (_, url), Client(url) as client:
        fill(url, TOPIC, rows, PARTITIONS)
        began = perf_counter()
        settings = archive.ArchiveSettings(url=url, lake=str(lake), topics=(TOPIC,), progress="none")
        archive.run(place.spark, settings, progress_of("none"))
        archived = perf_counter() - began
        yield Result("archive, once", rows / archived, "msg/s", note=f"{short(rows)} in {archived:.1f} s")
        client.configure(TOPIC, retention={"bytes": 1})
        kept = _dropped(client)
        began = perf_counter()
        again = replay.ReplaySettings(
            url=url, topic=TOPIC, to="again", lake=str(lake), plain=True, progress="none", output="json"
        )
        replay.run(place.spark, again, progress_of("none"))
        replayed = perf_counter() - began
        all_there(values(client, "again"), rows)
    note = f"{short(rows)} in {replayed:.1f} s, byte by byte what was published; {kept} were still in the log"
    yield Result("replay of what was dropped", rows / replayed, "msg/s", note=note)


def _once(settings: archive.ArchiveSettings) -> archive.ArchiveSettings:
    from msgspec.structs import replace

    return replace(settings, continuous=False)


def _published(url: str, sizes: Sizes) -> dict[str, float]:
    words = [sys.executable, "-m", "benchmarks.spark_publisher", url, TOPIC, str(sizes.rate), str(sizes.seconds)]
    ended = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, float] = json.loads(ended.stdout)
    return told


def _ends(client: Client) -> int:
    return sum(end.next for end in client.offsets(TOPIC))


def _archived(lake: Path) -> int:
    return sum(open_lake(str(lake)).offsets("default", TOPIC).values())


def _dropped(client: Client) -> int:
    """Wait until retention has dropped what it may; how many messages it left."""
    pause = threading.Event()
    for _ in range(10 * _PATIENCE_SECONDS):
        ends = client.offsets(TOPIC)
        if all(end.first == end.next for end in ends):
            break
        pause.wait(0.1)
    return sum(end.next - end.first for end in ends)
