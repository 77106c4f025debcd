"""`mqueue pipeline JOB …`: the words go to the job, and the place that the command line was told of goes with them."""

from __future__ import annotations

import os
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mqueue.cli.verbs import pipeline
from mqueue.pipeline.job import Job, Settings
from mqueue.pipeline.jobs import JOBS
from mqueue.pipeline.report import Report
from tests.integration.terminal import Terminal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    return Terminal(monkeypatch, tmp_path)


def test_every_job_is_there_and_says_what_it_does(terminal: Terminal) -> None:
    assert [record["job"] for record in terminal.run("pipeline", "-o", "json").json] == list(JOBS)
    for name in JOBS:
        job = import_module(f"mqueue.pipeline.jobs.{name}").JOB
        assert job.name == name
        shown = terminal.run("pipeline", name, "--help")
        assert (shown.code, shown.out.startswith(f"usage: mqueue pipeline {name} ")) == (0, True)


def test_words_that_make_no_sense_are_a_usage_error(terminal: Terminal) -> None:
    assert terminal.run("pipeline", "archvie").code == 2
    assert terminal.run("pipeline", "compact").code == 2
    assert "unrecognized arguments: --colour" in terminal.run("pipeline", "compact", "--lake", "x", "--colour").err


def test_what_goes_wrong_is_one_line_and_a_code(terminal: Terminal) -> None:
    done = terminal.run("pipeline", "compact", "--lake", terminal.home / "none", "--progress", "none")
    assert (done.code, done.err) == (3, f"mqueue: there is no Delta lake at {terminal.home / 'none'}\n")


def test_the_place_and_the_output_are_handed_on(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def run(spark: object, settings: Settings, progress: object) -> Report:
        seen.append((settings.options(), os.environ.get("MQUEUE_TOKEN"), settings.output, settings.topics))  # type: ignore[attr-defined]
        return Report("told", {"messages": 1}, clean=False)

    class ToldSettings(Settings, frozen=True, kw_only=True):
        topics: tuple[str, ...] = ()

    job = Job("told", "Is told.", ToldSettings, run, spark=lambda settings: False)
    module = types.SimpleNamespace(main=job.main)
    monkeypatch.setattr(pipeline, "import_module", lambda name: module)
    terminal.set("MQUEUE_URL", "http://elsewhere:1")
    (terminal.home / "token").write_text("secret\n")
    words = ["--url", "https://h:2", "-n", "tenant", "--token-file", terminal.home / "token", "--ca", "ca.pem"]
    done = terminal.run("pipeline", "archive", "--topics", "a,b", *words, "-o", "json", "--timeout", "5s")
    assert (done.code, done.json["numbers"]) == (1, {"messages": 1})
    options = {"servers": "https://h:2", "namespace": "tenant", "timeout": "5s", "ca": "ca.pem"}
    assert seen == [(options, "secret", "json", ("a", "b"))]
    assert (os.environ["MQUEUE_URL"], "MQUEUE_TOKEN" in os.environ) == ("http://elsewhere:1", False)
    refused = terminal.run("pipeline", "archive", "--url", "https://h:2", "--cert", "c", "--cert-key", "k")
    assert (refused.code, "--cert-key" in refused.err) == (4, True)
