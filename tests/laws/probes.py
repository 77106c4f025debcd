"""Ways to look for a bug: run something from a seed, and collect what checkers, model and fold complain of."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from mqueue.model.ident import IdSource, instant_of, node_of
from mqueue.store.recover import recover
from tests.laws.checkers import CHECKERS
from tests.laws.snapshot import differences, heart_of, snapshot
from tests.laws.test_machine import Machine
from tests.laws.walks import walk
from tests.laws.workload import Threads, Workload


def complaints(run: Workload) -> Iterator[tuple[str, str]]:
    """(checker, sentence) for everything that is wrong with a run that is over."""
    for name, checker in CHECKERS.items():
        for sentence in checker(run.history):
            yield name, sentence
    for sentence in unfolded(run):
        yield "fold", sentence


def unfolded(run: Workload) -> Iterator[str]:
    """Where the state differs from the fold of its log."""
    now = run.clock.now()
    run.store.flush()
    folded = heart_of(recover(run.store.log))
    folded.advance(now)
    if folded.news:
        yield "the fold had to decide something that is not in the log"
    yield from differences(snapshot(run.store.state, now), snapshot(folded.state, now))


def by_workload(scene: str, number: int) -> Iterator[tuple[str, str]]:
    try:
        run = Workload(scene, number).run()
    except Exception as error:
        yield "crash", repr(error)
        return
    try:
        yield from complaints(run)
    except (LookupError, AssertionError) as error:  # a broken broker's books may not even be readable
        yield "crash", repr(error)


def by_threads(number: int) -> Iterator[tuple[str, str]]:
    yield from complaints(Threads(number).run())


def by_model(number: int, examples: int = 120) -> Iterator[tuple[str, str]]:
    """The model queue, driven beside the broker; the first difference is enough, and need not be made small."""
    few = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(seed(number)(Machine), settings=few)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        yield "model", repr(error)


def by_walks(number: int, walks: int = 8) -> Iterator[tuple[str, str]]:
    """The same along walks where retention has much to do."""
    try:
        for step in range(walks):
            walk(number * walks + step)
    except Exception as error:
        yield "model", repr(error)


def by_ids() -> Iterator[tuple[str, str]]:
    """Ids under a clock that jumps, ahead and back: unique, rising, and those of a frame in one slot."""
    source, now, highest = IdSource(0), 1_767_225_600_000, -1
    for step in range(400):
        now += (-900, 0, 0, 1, 3, 1_000)[step * 7 % 6]
        count = (1, 4_096, 3, 1_000)[step % 4]
        first = source.take(count, now)
        if first <= highest:
            yield "I19 ids", f"id {first} was given after {highest}"
        last = first + count - 1
        if (instant_of(first), node_of(first)) != (instant_of(last), node_of(last)):
            yield "I19 ids", f"{count} ids from {first} on cross a millisecond"
        highest = last
