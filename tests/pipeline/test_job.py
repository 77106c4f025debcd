"""What all jobs share: settings out of words, progress in four shapes, reports in two, and errors in one line."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import threading
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from mqueue.model.errors import Conflict, Error, NotFound, Unavailable
from mqueue.pipeline.failure import error_of
from mqueue.pipeline.job import Job, Settings
from mqueue.pipeline.progress import JsonLines, Lines, Progress, progress_of
from mqueue.pipeline.report import Report
from mqueue.pipeline.watching import lag_of


class CountSettings(Settings, frozen=True, kw_only=True):
    lake: Annotated[str, Meta(description="Where the lake is.")]
    lake_format: Literal["delta", "iceberg"] = "delta"
    topics: tuple[str, ...] = ()
    batch_rows: Annotated[int, Meta(ge=1)] = 10
    rate: float | None = None
    continuous: bool = False


def job(run: Any = None) -> Job[CountSettings]:
    return Job(
        "count",
        "Counts.\n\nMore.",
        CountSettings,
        run or (lambda *given: Report("count", {})),
        spark=lambda settings: False,
    )


# Words


def test_fields_are_options() -> None:
    words = "--lake ./lake --topics a,b --topics c --batch-rows 5 --rate 1.5 --continuous --lake-format iceberg"
    found = job().parse([*words.split(), "--conf", "spark.x=1,2"])
    assert (found.lake, found.topics, found.batch_rows, found.rate) == ("./lake", ("a", "b", "c"), 5, 1.5)
    assert (found.continuous, found.lake_format, found.conf) == (True, "iceberg", ("spark.x=1,2",))
    assert job().parse(["--lake", "x"]) == CountSettings(lake="x")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "--lake"),
        (["--lake", "x", "--batch-rows", "0"], "--batch-rows: expected int >= 1"),
        (["--lake", "x", "--batch-rows", "many"], "--batch-rows: invalid int value: 'many'"),
        (["--lake", "x", "--lake-format", "csv"], "--lake-format: invalid choice: 'csv'"),
        (["--lake", "x", "--lak", "y"], "unrecognized arguments: --lak y"),
    ],
)
def test_words_that_make_no_sense_are_a_usage_error(
    words: Sequence[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        job().main(words)
    assert ending.value.code == 2
    assert why in capsys.readouterr().err


def test_help_says_what_a_job_is_and_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        job().main(["--help"])
    assert ending.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: mqueue pipeline count ")
    for words in ("Counts.", "--lake-format {delta,iceberg}", "Where the lake is.", "[MQUEUE_URL]"):
        assert words in shown


def test_the_server_is_the_one_that_was_named_else_that_of_the_environment() -> None:
    environ = {
        "MQUEUE_URL": "http://a:1",
        "MQUEUE_NAMESPACE": "tenant",
        "MQUEUE_TOKEN_FILE": "t",
        "MQUEUE_CA_FILE": "c",
    }
    found = {"servers": "http://a:1", "namespace": "tenant", "timeout": "30s"}
    here = {"servers": "http://127.0.0.1:8080", "namespace": "default", "timeout": "30s"}
    assert Settings().options({}) == here
    assert Settings().options(environ) == {**found, "tokenFile": "t"}
    assert Settings().options({**environ, "MQUEUE_TOKEN": "s"}) == found
    named = Settings(url="https://b:2", namespace="n", token_file="f", cert="p", timeout="5s").options(environ)
    assert named == {
        "servers": "https://b:2",
        "namespace": "n",
        "timeout": "5s",
        "tokenFile": "f",
        "ca": "c",
        "cert": "p",
    }


# Ends


def run_to(ending: BaseException | Report) -> Any:
    def run(spark: object, settings: object, progress: Progress) -> Report:
        if isinstance(ending, BaseException):
            raise ending
        return ending

    return run


@pytest.mark.parametrize(
    ("ending", "code", "sentence"),
    [
        (NotFound("topic 'x' is not there"), 3, "mqueue: topic 'x' is not there\n"),
        (Unavailable("nobody\x1b[2J answers"), 5, "mqueue: nobody\\x1b[2J answers\n"),
        (FileNotFoundError(2, "No such file", "ref.csv"), 1, "mqueue: ref.csv: No such file\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_code(
    ending: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(run_to(ending)).main(["--lake", "x", "--progress", "none"]) == code
    assert capsys.readouterr().err == sentence


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        job(run_to(ZeroDivisionError())).main(["--lake", "x", "--progress", "none"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_told_to_stop_is_interrupted(number: int) -> None:
    def run(*given: object) -> Report:
        os.kill(os.getpid(), number)
        raise AssertionError("it went on")

    assert job(run).main(["--lake", "x", "--progress", "none"]) == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_endless_job_ends_with_its_round_and_reports(number: int) -> None:
    def run(spark: object, settings: object, progress: object, stop: threading.Event) -> Report:
        os.kill(os.getpid(), number)
        assert stop.wait(60)
        return Report("count", {"rounds": 1})

    def hasty(spark: object, settings: object, progress: object, stop: threading.Event) -> Report:
        os.kill(os.getpid(), number)
        assert stop.wait(60)
        os.kill(os.getpid(), number)
        raise AssertionError("it went on")

    before = signal.getsignal(number)
    for endless, code in ((run, 0), (hasty, 130)):
        told: Job[CountSettings] = Job(
            "count", "Counts.", CountSettings, endless, spark=lambda settings: False, endless=lambda settings: True
        )
        assert told.main(["--lake", "x", "--progress", "none"]) == code
    assert signal.getsignal(number) is before


def test_warnings_of_ours_are_told_and_what_libraries_log_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    def run(*given: object) -> Report:
        logging.getLogger("mqueue.pipeline").warning("%s is gone", "x")
        logging.getLogger("mqueue.pipeline").info("by the way")
        logging.getLogger("py4j").error("a stack of frames")
        return Report("count", {})

    assert job(run).main(["--lake", "x", "--progress", "none"]) == 0
    assert capsys.readouterr().err == "mqueue: x is gone\n"


@pytest.mark.parametrize(("clean", "code"), [(True, 0), (False, 1)])
def test_the_report_is_what_goes_to_stdout(clean: bool, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("count", {"messages": 1234, "rate": 2.5, "last": None}, ({"topic": "a"},), ("skipped b",), clean)
    assert job(run_to(report)).main(["--lake", "x", "--progress", "none"]) == code
    text = capsys.readouterr().out
    assert text.splitlines()[:4] == ["count", "  messages  1,234", "  rate      2.5", "  last      -"]
    assert job(run_to(report)).main(["--lake", "x", "--progress", "none", "--output", "json"]) == code
    shown = json.loads(capsys.readouterr().out)
    assert (shown["numbers"]["messages"], shown["findings"], shown["clean"]) == (1234, [{"topic": "a"}], clean)


def test_of_many_findings_people_see_the_first() -> None:
    report = Report("count", {}, tuple({"offset": n, "why": "x" * 100} for n in range(70)))
    lines = report.text().splitlines()
    assert "… and 20 more; --output json shows all" in lines
    assert max(map(len, lines)) < 80


class SparkLike(Exception):
    """As PySpark hands on what a task raised."""


SparkLike.__module__ = "pyspark.errors"


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (
            "Job aborted.\nTraceback …\nmqueue.model.errors.NotFound: topic 'x' is gone\n\tat org.x",
            NotFound,
            "topic 'x' is gone",
        ),
        ("mqueue.model.errors.Conflict: a\nmqueue.model.errors.Conflict: b", Conflict, "b"),
        ("Task failed\nValueError: bad row 7\n\tat org.apache", Error, "Spark: bad row 7"),
        ("[TABLE_OR_VIEW_NOT_FOUND] no such view\nmore", Error, "Spark: [TABLE_OR_VIEW_NOT_FOUND] no such view"),
    ],
)
def test_our_errors_come_back_out_of_what_spark_wraps_around_them(text: str, kind: type[Error], sentence: str) -> None:
    found = error_of(SparkLike(text))
    assert type(found) is kind
    assert found.message == sentence


# Progress


class Ticking:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_plain_progress_is_a_line_now_and_then() -> None:
    lines: list[str] = []
    clock = Ticking()
    progress = Progress(Lines(lines.append, 5.0), clock)
    progress.step("archive", total=1000)
    for _ in range(10):
        clock.seconds += 1
        progress.advance(100, lag=7)
    progress.say("careful")
    progress.close()
    assert lines == [
        "archive: 0 of 1,000 in 0.0 s\n",
        "archive: 500 of 1,000 in 5.0 s, 100/s, lag 7\n",
        "archive: 1,000 of 1,000 in 10.0 s, 100/s, lag 7\n",
        "careful\n",
        "archive: 1,000 of 1,000 in 10.0 s, 100/s, lag 7\n",
    ]


def test_progress_for_programs_is_an_object_a_line() -> None:
    lines: list[str] = []
    progress = Progress(JsonLines(lines.append, 1.0), Ticking())
    progress.step("audit")
    progress.reach(5, 10)
    progress.say("careful")
    progress.step("next")
    progress.close()
    shown = [json.loads(line) for line in lines]
    assert [(one.get("step"), one.get("done"), one.get("last")) for one in shown if "step" in one] == [
        ("audit", 0, False),
        ("audit", 5, False),
        ("audit", 5, True),
        ("next", 0, False),
        ("next", 0, True),
    ]
    assert {"say": "careful"} in shown


@pytest.mark.parametrize("mode", ["auto", "rich", "plain", "json", "none"])
def test_every_mode_shows_a_whole_job(mode: str) -> None:
    file = io.StringIO()
    with progress_of(mode, file) as progress:
        progress.step("one [red]", total=2)
        progress.advance(2, lag="none")
        progress.say("said [bold]")
        progress.step("two")
        progress.advance(1)
    shown = file.getvalue()
    assert ("said [bold]" in shown and "one [red]" in shown) == (mode != "none")


def test_lag_is_what_the_sources_have_beyond_what_was_read() -> None:
    source = {"endOffset": '{"a":{"0":5,"1":2}}', "latestOffset": '{"a":{"0":9,"1":2},"b":{"0":3}}'}
    assert lag_of([source, {"endOffset": None, "latestOffset": None}]) == 7
