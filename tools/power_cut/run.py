"""Cuts the power under a broker, on file systems of this kernel, and looks whether it kept its word.

    run.py --cuts 20 --seed 1 --control

Each cut: a fresh disk, a process that publishes, receives and acks, the power off at a random moment, the file system
checked and mounted again, the broker opened, and all that was answered held against all that is there.
The control does the same with a disk that only claims to sync, and has to be found out.
Exit: 0, nothing was lost and the control was found out; 1, not so; 2, it cannot run here.
"""

from __future__ import annotations

import argparse
import json
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from machine import Machine, file_systems, missing, sweep

HERE = Path(__file__).parent
SHOWN = 5
PATIENCE_SECONDS = 60


@dataclass
class Verdict:
    published: int
    acked: int
    lost: int
    wrong: list[str]


class Program:
    """A script beside this one, loaded while the disk is being made."""

    def __init__(self, name: str, *args: object) -> None:
        self._name = name
        command = [sys.executable, str(HERE / name), *map(str, args)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def expect(self, line: str) -> None:
        got = self._line()
        if got != line:
            raise ChildProcessError(f"{self._name} said {got!r}, not {line!r}")

    def begin(self) -> None:
        self.expect("ready")
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        return self._line()

    def _line(self) -> str:
        """Each is asked for before the next is written, so none waits unseen in a buffer."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE_SECONDS)[0]:
            raise TimeoutError(f"{self._name} says nothing")
        return self._process.stdout.readline().strip()


def cut_once(seed: int, file_system: str, *, control: bool, keep: Path | None) -> Verdict:
    rng = Random(seed)
    with Machine(file_system, seed) as machine:
        answers = machine.beside / "answers"
        options = ("--unsynced",) if control else ()
        with Program("check.py", machine.folder / "data", answers) as checker:
            with Program("worker.py", machine.folder / "data", answers, seed, *options) as worker:
                worker.begin()
                worker.expect("writing")
                time.sleep(rng.uniform(0.3, 1))
                machine.cut()
            machine.restart()
            checker.begin()
            verdict = Verdict(**json.loads(checker.answer()))
        if verdict.wrong and keep and not control:
            _keep(machine, keep / f"seed-{seed}")
        return verdict


def _keep(machine: Machine, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--sparse=always", machine.image, machine.beside / "answers", folder], check=True)


def run(args: argparse.Namespace) -> bool:
    """Whether all is well."""
    failed = found_out = published = acked = 0
    controls = [False] * args.cuts + [True] * args.control
    for number, control in enumerate(controls):
        seed = args.seed * 1_000_000 + number
        file_system = args.file_system or Random(seed).choice(file_systems())
        start = time.monotonic()
        verdict = cut_once(seed, file_system, control=control, keep=args.keep)
        _show(seed, file_system, control, verdict, time.monotonic() - start)
        if control:
            found_out += verdict.lost > 0
        else:
            failed += bool(verdict.wrong)
            published += verdict.published
            acked += verdict.acked
    print(f"{args.cuts} cuts, {failed} failed, {published} published and {acked} acked were answered")
    if args.control:
        print(f"{args.control} controls, {found_out} found out")
    return not failed and found_out == args.control


def _show(seed: int, file_system: str, control: bool, verdict: Verdict, seconds: float) -> None:
    kind = "control" if control else "cut"
    outcome = f"{verdict.lost} LOST, {len(verdict.wrong)} wrong" if verdict.wrong else "ok"
    counts = f"published {verdict.published}, acked {verdict.acked}"
    print(f"{kind} {seed} {file_system}: {counts}: {outcome}, {seconds:.1f} s", flush=True)
    if not control:
        for line in verdict.wrong[:SHOWN]:
            print(f"  {line}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--control", type=int, nargs="?", const=1, default=0, help="how many controls, 1 if not said")
    parser.add_argument("--file-system", choices=file_systems(), help="one of them, not any")
    parser.add_argument("--keep", type=Path, help="a folder for the disks and answers of cuts that failed")
    return parser.parse_args()


def _terminated(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    why = missing()
    if why:
        print(f"power_cut: {why}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return 0 if run(_arguments()) else 1
    finally:
        sweep()


if __name__ == "__main__":
    sys.exit(main())
