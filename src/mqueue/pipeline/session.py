"""The Spark session that jobs run in: the one that is there, else one as it was configured, else one on this machine.

    spark = get_session("archive", {"spark.sql.shuffle.partitions": "8"})

Nobody here names a master where somebody else did: `spark-submit --master`, SPARK_REMOTE, a file of defaults.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from mqueue.model.errors import BadSetting
from mqueue.pipeline.java import find_java, use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
CONNECT = "sc://"
_DEFAULTS = {"spark.sql.session.timeZone": "UTC", "spark.sql.execution.arrow.maxRecordsPerBatch": "10000"}
"""Of sessions that are made here. Times of messages are in UTC, and a batch of rows is what one call may stage."""
_PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def get_session(app: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process; where there is none, a new one. `conf` is set in either."""
    spark_session = _spark_session()
    given = {name: str(value) for name, value in (conf or {}).items()}
    builder = spark_session.builder
    if spark_session.getActiveSession() is None:
        given = {"spark.app.name": app, **_DEFAULTS, **given}
        master = master_of(given, os.environ)
        if master is None:
            master = given["spark.master"] = LOCAL
        prepare(master, given, os.environ)
    for name, value in given.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


def master_of(conf: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """Where a new session will run, as it was configured by anybody; None: nobody did."""
    for word in ("spark.remote", "spark.master"):
        if conf.get(word):
            return conf[word]
    if environ.get("SPARK_REMOTE"):
        return environ["SPARK_REMOTE"]
    if environ.get("PYSPARK_GATEWAY_PORT"):
        return environ.get("MASTER", "spark-submit")  # which has chosen, and has started the JVM
    return _submitted(environ) or environ.get("MASTER") or _in_defaults(environ)


def prepare(master: str, conf: Mapping[str, str], environ: MutableMapping[str, str]) -> None:
    """What a new session needs of the environment: Java, and for one on this machine this very Python."""
    if master.startswith(CONNECT):
        return
    if master.startswith("local"):
        if "spark.pyspark.python" not in conf:
            for name in _PYTHONS:
                environ.setdefault(name, sys.executable)  # else the python3 of PATH is taken, which has no packages
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not environ.get("PYSPARK_GATEWAY_PORT"):
        use_java(find_java(environ), environ)


def _spark_session() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise BadSetting("PySpark is not there: pip install 'mqueue[spark]'", code="no_pyspark") from error
    return SparkSession


def _submitted(environ: Mapping[str, str]) -> str | None:
    """The master in the words that PySpark hands to spark-submit."""
    words = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for place, word in enumerate(words):
        for flag in ("--master", "--remote"):
            if word == flag and place + 1 < len(words):
                return words[place + 1]
            if word.startswith(f"{flag}="):
                return word.partition("=")[2]
        if word.startswith("spark.master="):
            return word.partition("=")[2]
    return None


def _in_defaults(environ: Mapping[str, str]) -> str | None:
    """The master in spark-defaults.conf."""
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else None)
    if folder is None:
        return None
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if name == "spark.master" and value.strip():
            return value.strip()
    return None
