"""Where a session runs: as somebody configured it, else on this machine; and what it needs of the environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mqueue
from mqueue.pipeline import get_session
from mqueue.pipeline.session import master_of, prepare


@pytest.mark.parametrize(
    ("conf", "environ", "master"),
    [
        ({}, {}, None),
        ({"spark.master": "yarn"}, {"SPARK_REMOTE": "sc://a"}, "yarn"),
        ({"spark.remote": "sc://b"}, {"MASTER": "yarn"}, "sc://b"),
        ({}, {"SPARK_REMOTE": "sc://a"}, "sc://a"),
        ({}, {"MASTER": "spark://a:7077"}, "spark://a:7077"),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, "yarn"),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--conf spark.master=local[3] pyspark-shell"}, "local[3]"),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--master=k8s://https://a pyspark-shell"}, "k8s://https://a"),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"}, None),
        ({}, {"PYSPARK_GATEWAY_PORT": "1"}, "spark-submit"),
    ],
)
def test_whoever_names_a_master_is_obeyed(conf, environ, master) -> None:
    assert master_of(conf, environ) == master


@pytest.mark.parametrize(
    ("lines", "master"),
    [
        ("spark.master   spark://a:7077\n", "spark://a:7077"),
        ("# spark.master yarn\nspark.ui.enabled false\nspark.master=yarn\n", "yarn"),
        ("spark.ui.enabled false\n", None),
    ],
)
def test_a_file_of_defaults_is_obeyed(tmp_path: Path, lines: str, master: str | None) -> None:
    (tmp_path / "spark-defaults.conf").write_text(lines, encoding="utf-8")
    assert master_of({}, {"SPARK_CONF_DIR": str(tmp_path)}) == master


@pytest.fixture
def java(tmp_path: Path) -> dict[str, str]:
    """An environment with a Java in it."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return {"PATH": str(tmp_path / "bin")}


def test_on_this_machine_tasks_run_this_python(java) -> None:
    prepare("local[*]", {}, java)
    assert java["PYSPARK_PYTHON"] == java["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert java["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_what_a_user_has_set_stays(java) -> None:
    given = {**java, "PYSPARK_PYTHON": "/opt/python", "SPARK_LOCAL_IP": "10.0.0.1"}
    environ = dict(given)
    prepare("local[2]", {}, environ)
    assert {name: environ[name] for name in given} == given
    prepare("local[2]", {"spark.pyspark.python": "/opt/python"}, java)
    assert "PYSPARK_PYTHON" not in java


@pytest.mark.parametrize("master", ["yarn", "spark://a:7077", "k8s://https://a"])
def test_a_cluster_has_its_own_python(java, master) -> None:
    before = dict(java)
    prepare(master, {}, java)
    assert java == before


def test_a_server_elsewhere_needs_no_java() -> None:
    environ = {"PATH": "", "JAVA_HOME": "/no/such"}
    prepare("sc://a", {}, environ)
    assert environ == {"PATH": "", "JAVA_HOME": "/no/such"}


def test_no_pyspark_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(mqueue.BadSetting, match=r"pip install 'mqueue\[spark\]'") as refused:
        get_session("x")
    assert refused.value.code == "no_pyspark"


def test_the_package_imports_without_pyspark() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import mqueue.pipeline as p\n"
        "assert callable(p.register) and callable(p.get_session)\n"
        "import pyspark_mqueue\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_session_that_is_there_is_taken_as_it_is(spark) -> None:
    zone = "spark.sql.session.timeZone"
    assert spark.conf.get(zone) == "UTC"
    spark.conf.set(zone, "Europe/Berlin")
    try:
        again = get_session("other", {"spark.sql.shuffle.partitions": "3"})
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get(zone) == "Europe/Berlin"
        assert again.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set(zone, "UTC")
        spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_tasks_run_this_python_and_find_the_package(spark) -> None:
    def found(_: int) -> str:
        import mqueue

        return f"{sys.executable} {mqueue.__file__}"

    spark.udf.register("found", found, "string")
    [row] = spark.sql("select found(1) as it").collect()
    assert row.it == f"{sys.executable} {mqueue.__file__}"
