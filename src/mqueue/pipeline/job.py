"""What all jobs share: settings from words of a command line, one line for what goes wrong, a report at the end.

    class ArchiveSettings(Settings, frozen=True, kw_only=True):
        lake: Annotated[str, Meta(description="Where the lake is.")]

    JOB = Job("archive", __doc__, ArchiveSettings, run)

    def main(argv: Sequence[str] | None = None) -> int:
        return JOB.main(argv)

A field is an option: `lake_format` is `--lake-format`; a bool is a flag, a tuple a comma list that may be repeated.
Works without our command line, so that `spark-submit` may run a job. Does not know what any job does.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, inspect

from mqueue.client.address import DEFAULT_URL
from mqueue.model.errors import Refused
from mqueue.model.exits import FAILED, INTERRUPTED, OK, code_of, complaint
from mqueue.pipeline.connection import Connection, connection_of
from mqueue.pipeline.ending import only_ours, told_to_stop
from mqueue.pipeline.failure import error_of
from mqueue.pipeline.progress import progress_of
from mqueue.pipeline.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Settings(Struct, frozen=True, kw_only=True):
    """What every job takes. A token is in no field: it is read where it is used, and shown nowhere."""

    url: Annotated[str, Meta(description="The server. [MQUEUE_URL]")] = ""
    namespace: Annotated[str, Meta(description="The tenant. [MQUEUE_NAMESPACE]")] = ""
    token_file: Annotated[str, Meta(description="A file with the token. [MQUEUE_TOKEN_FILE, MQUEUE_TOKEN]")] = ""
    ca: Annotated[str, Meta(description="Whom to trust: certificates, PEM. [MQUEUE_CA_FILE]")] = ""
    cert: Annotated[str, Meta(description="Our own certificate and its key, PEM.")] = ""
    timeout: Annotated[str, Meta(description="How long a call may take: 30s.")] = "30s"
    conf: Annotated[tuple[str, ...], Meta(description="For Spark: NAME=VALUE; may be repeated.")] = ()
    output: Annotated[Literal["table", "json"], Meta(description="How the report is shown.")] = "table"
    progress: Annotated[
        Literal["auto", "rich", "plain", "json", "none"], Meta(description="How progress is shown, on stderr.")
    ] = "auto"

    def options(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """For the source and the sink: where the server is. What is not said here or in the environment is here."""
        file = self.token_file or ("" if environ.get("MQUEUE_TOKEN") else environ.get("MQUEUE_TOKEN_FILE", ""))
        servers = self.url or environ.get("MQUEUE_URL") or DEFAULT_URL
        ca = self.ca or (environ.get("MQUEUE_CA_FILE", "") if servers.lower().startswith("https:") else "")
        given = {
            "servers": servers,
            "namespace": self.namespace or environ.get("MQUEUE_NAMESPACE") or "default",
            "timeout": self.timeout,
            "tokenFile": file,
            "ca": ca,
            "cert": self.cert,
        }
        return {name: value for name, value in given.items() if value}

    def connection(self) -> Connection:
        """For calls of the driver."""
        return connection_of({name.lower(): value for name, value in self.options().items()})


S = TypeVar("S", bound=Settings)

_QUIET = {"spark.log.level": "OFF", "spark.ui.showConsoleProgress": "false"}
"""Of sessions that are made for a job: it shows its progress itself, and what goes wrong is one line."""


class Job(Generic[S]):
    """A name, what it is in one line, its settings, and what runs it.

    `spark`: whether it needs a session. `endless`: whether it goes on until it is told to stop; `run` is then given the
    event that says so, too.
    """

    def __init__(
        self,
        name: str,
        words: str | None,
        settings: type[S],
        run: Callable[..., Report],
        *,
        spark: Callable[[S], bool] = lambda settings: True,
        endless: Callable[[S], bool] = lambda settings: False,
    ) -> None:
        self.name = name
        self.words = (words or "").strip().splitlines()[0]
        self.settings = settings
        self._run = run
        self._spark = spark
        self._endless = endless

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run it as a program does; the exit code. What the words get wrong ends in `SystemExit` 2, as everywhere."""
        settings = self.parse(argv)
        try:
            with only_ours():
                report = self.run(settings)
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception as raised:
            error = error_of(raised)
            if error is None:
                raise
            sys.stderr.write(complaint(" ".join(error.message.splitlines())) + "\n")
            return code_of(error)
        sys.stdout.write(report.json() if settings.output == "json" else report.text())
        return OK if report.clean else FAILED

    def run(self, settings: S) -> Report:
        """In a session that is there or is made for it; one that was made ends with it."""
        stop = threading.Event() if self._endless(settings) else None
        session = _session(f"mqueue {self.name}", settings.conf) if self._spark(settings) else nullcontext()
        with progress_of(settings.progress) as progress, session as spark, told_to_stop(stop):
            return self._run(spark, settings, progress, *([stop] if stop else []))

    def parse(self, argv: Sequence[str] | None = None) -> S:
        parser = parser_of(f"mqueue pipeline {self.name}", self.words, self.settings)
        given = parser.parse_args(argv)
        try:
            return msgspec.convert(_values(given), self.settings, strict=False)
        except msgspec.ValidationError as error:
            parser.error(_sentence(error))


@contextmanager
def _session(app: str, given: Sequence[str]) -> Iterator[SparkSession]:
    from mqueue.pipeline.session import get_session

    there = _has_session()
    conf = dict(_pair(text) for text in given)
    spark = get_session(app, conf if there else {**_QUIET, **conf})
    if not there:
        _hush()
    try:
        yield spark
    finally:
        if not there:
            spark.stop()


def _hush() -> None:
    """PySpark logs what it raises, with its stack; a job tells of it in one line."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _has_session() -> bool:
    """Asked without importing PySpark: whether that is there is told by who makes a session."""
    loaded = sys.modules.get("pyspark.sql")
    return loaded is not None and loaded.SparkSession.getActiveSession() is not None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Refused(f"--conf {text!r:.80}; it takes NAME=VALUE")
    return name, value


def parser_of(program: str, words: str, settings: type[Settings]) -> ArgumentParser:
    """The options that the fields stand for."""
    parser = ArgumentParser(prog=program, description=words, allow_abbrev=False)
    described = inspect.type_info(settings)
    assert isinstance(described, inspect.StructType)
    for field in described.fields:
        _add(parser, field)
    return parser


def _add(parser: ArgumentParser, field: inspect.Field) -> None:
    kind, words = _kind(field.type)
    option = f"--{field.name.replace('_', '-')}"
    shared: dict[str, Any] = {"dest": field.name, "help": words, "required": field.required, "default": None}
    if isinstance(kind, inspect.BoolType):
        parser.add_argument(option, action="store_true", **shared)
    elif isinstance(kind, inspect.VarTupleType):
        parser.add_argument(option, action="append", metavar="A[,B]" if _splits(field.name) else "TEXT", **shared)
    elif isinstance(kind, inspect.LiteralType):
        parser.add_argument(option, choices=kind.values, **shared)
    else:
        number = {inspect.IntType: int, inspect.FloatType: float}.get(type(kind), str)
        parser.add_argument(option, type=number, metavar="N" if number is not str else "TEXT", **shared)


def _kind(type: inspect.Type) -> tuple[inspect.Type, str]:
    """What a field holds, without what may stand around it, and its description."""
    words = ""
    while True:
        if isinstance(type, inspect.Metadata):
            words = words or (type.extra_json_schema or {}).get("description", "")
            type = type.type
        elif isinstance(type, inspect.UnionType):
            (type,) = (one for one in type.types if not isinstance(one, inspect.NoneType))
        else:
            return type, words


def _splits(name: str) -> bool:
    """What is handed on to Spark may hold commas of its own."""
    return name not in ("conf", "option")


def _values(given: Namespace) -> dict[str, Any]:
    """What was typed, by field; what was not keeps its default."""
    values = {name: value for name, value in vars(given).items() if value is not None}
    for name, value in values.items():
        if isinstance(value, list) and _splits(name):
            values[name] = [part.strip() for text in value for part in text.split(",") if part.strip()]
    return values


def _sentence(error: msgspec.ValidationError) -> str:
    """`Expected `int` >= 1 - at `$.batch`` as `--batch: expected int >= 1`."""
    what, at, where = str(error).replace("`", "").partition(" - at $.")
    what = what[:1].lower() + what[1:]
    return f"--{where.replace('_', '-')}: {what}" if at else what
