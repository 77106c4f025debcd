"""A Spark cluster on this machine, out of the pip package: a master, two workers, and an executor on each.

    with Cluster(tmp_path) as cluster:
        get_session("app", cluster.conf)      # in a driver

All of it listens on 127.0.0.1, on ports that are free. When it closes nothing is left of it, executors included.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pyspark

from mqueue.pipeline.java import find_java, use_java

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
_DEADLINE_SECONDS = 120
_MASTER = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_PAGE = re.compile(r"Bound MasterWebUI to 127\.0\.0\.1, and started at http://[^:]+:(\d+)")
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DAEMON = f"{_QUICK} -Dspark.master.rest.enabled=false"  # that one would listen on a port of its own choice


def environment(**more: str) -> dict[str, str]:
    """Of a process that starts Spark, here or elsewhere in a cluster: the package and these tests are found there."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("MQUEUE_", "SPARK", "PYSPARK"))}
    use_java(find_java(kept), kept)
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    told = {"PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**kept, **told, **more}


def wait_until(what: str, true: Callable[[], object]) -> None:
    """Look again and again, not for ever."""
    end = time.monotonic() + _DEADLINE_SECONDS
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {_DEADLINE_SECONDS} seconds")
        threading.Event().wait(0.1)


class Cluster:
    """`master` is its URL; `conf` is what a session in it is made with."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._processes: list[subprocess.Popen[bytes]] = []
        place.mkdir(parents=True, exist_ok=True)
        try:
            self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.master, self._page = self._heard(_MASTER), self._heard(_PAGE)
            for number in range(WORKERS):
                self._start_worker(number)
            wait_until("workers in the cluster", lambda: self._alive() == WORKERS)
        except BaseException:
            self.close()
            raise

    @property
    def conf(self) -> dict[str, str]:
        return {
            "spark.master": self.master,
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": _QUICK,
            "spark.pyspark.python": sys.executable,
            # No task before both executors are there: else the first of them would do all the work. Spark knows how
            # many there will be only if it is told how many cores.
            "spark.cores.max": str(WORKERS),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{_DEADLINE_SECONDS}s",
        }

    def close(self) -> None:
        """Workers first: they end their executors."""
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(_DEADLINE_SECONDS / 4)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_DEADLINE_SECONDS)
            finally:
                _kill_group(process.pid)  # executors of a worker that had no time for them
        self._processes.clear()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_worker(self, number: int) -> None:
        folder = str(self._place / f"work-{number}")
        words = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", folder)
        self._start(f"worker-{number}", "worker.Worker", *words, self.master)

    def _start(self, name: str, kind: str, *words: str) -> None:
        home = str(Path(pyspark.__file__).parent)
        told = environment(SPARK_HOME=home, SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=_DAEMON)
        with (self._place / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind}", *words],
                cwd=self._place,
                env=told,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)

    def _heard(self, pattern: re.Pattern[str]) -> str:
        """What the master says of itself."""
        found: list[str] = []
        log = self._place / "master.log"

        def heard() -> bool:
            assert self._processes[0].poll() is None, log.read_text(errors="replace")
            found.extend(pattern.findall(log.read_text(errors="replace")))
            return bool(found)

        wait_until("a master", heard)
        return found[0]

    def _alive(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=_DEADLINE_SECONDS) as answer:
            told: int = json.load(answer)["aliveworkers"]
        return told


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
