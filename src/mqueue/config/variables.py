"""The environment, a `.env` file and the command line's flags: names with texts, turned into values for keys.

An empty variable is one that is not set. Of the variables that only look like ours (they begin as ours do) the unknown
are reported; all others belong to somebody else. Does not know what a value means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mqueue.config.given import Finds, Given, add_secret, meant, read_text
from mqueue.config.keys import KEYS, SECRET_FILES, Key
from mqueue.config.kinds import Raw

CONFIG_VARIABLE = "MQUEUE_CONFIG"
DOTENV_BYTES_MAX = 256 * 1024
FLAGS = {
    "data-dir": "broker.dataDir",
    "http": "broker.listeners.http",
    "grpc": "broker.listeners.grpc",
    "amqp": "broker.listeners.amqp",
}

# What programs that talk to a server read, not the server.
_CLIENTS = frozenset(
    {
        CONFIG_VARIABLE,
        "MQUEUE_URL",
        "MQUEUE_TOKEN",
        "MQUEUE_TOKEN_FILE",
        "MQUEUE_NAMESPACE",
        "MQUEUE_CONTEXT",
        "MQUEUE_CA_FILE",
    }
)
# Kubernetes tells every container of a service named mqueue where that is, in variables that begin like ours.
_SERVICE_LINK = re.compile(
    r".+_SERVICE_(HOST|PORT(_.+)?)=.*|.+_PORT=[a-z]+://.*|.+_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=.*"
)
_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<text>.*)")
_QUOTED = re.compile(r"""(?:'(?P<plain>[^']*)'|"(?P<escaped>(?:[^"\\]|\\.)*)")\s*(?:#.*)?""")
_ESCAPES = {"n": "\n", "t": "\t"}


def from_environment(environ: Mapping[str, str]) -> Finds:
    return _from_variables(environ, lambda name: name)


def from_dotenv(path: str | Path) -> tuple[Finds, dict[str, str]]:
    """What a `.env` holds, and its variables; a file that is not there holds nothing."""
    if not Path(path).exists():
        return Finds([], []), {}
    try:
        text = read_text(path, DOTENV_BYTES_MAX)
    except ValueError as error:
        return Finds([], [f"{path}: {error}"]), {}
    variables: dict[str, str] = {}
    lines: dict[str, int] = {}
    problems: list[str] = []
    for line, entry in _entries(text):
        if entry is None:
            problems.append(f"{path}:{line}: is not NAME=value, or a quote is left open")
        elif entry[0] in variables and (entry[0] in _KNOWN or _looks_ours(entry[0])):
            problems.append(f"{path}:{line}: {entry[0]} stands there twice, first in line {lines[entry[0]]}")
        else:
            variables[entry[0]], lines[entry[0]] = entry[1], line
    finds = _from_variables(variables, lambda name: f"{path}:{lines[name]}: {name}")
    return Finds(finds.given, problems + finds.problems), variables


def from_flags(flags: Mapping[str, Any]) -> Finds:
    """By the names of the command line, or by a key's own path. None: not given."""
    finds = Finds([], [])
    given = {name.lstrip("-").replace("_", "-"): value for name, value in flags.items() if value is not None}
    memory = given.pop("memory", False)
    given.pop("config", None)
    if memory and "data-dir" in given:
        finds.problems.append("--memory and --data-dir: give one of them")
    if memory or "data-dir" in given:  # naming a directory is asking for it, whatever a file says
        finds.given.append(Given(KEYS["broker.storage"], "memory" if memory else "disk", "--memory"))
    for name, value in given.items():
        path = FLAGS.get(name, name)
        if path in KEYS:
            finds.given.append(Given(KEYS[path], _raw(value), f"--{name}"))
        elif path in SECRET_FILES:
            add_secret(finds, SECRET_FILES[path], str(value), f"--{name}")
        else:
            finds.problems.append(f"--{name:.80}: unknown flag{meant(name, (*FLAGS, 'memory', 'config', *KEYS))}")
    return finds


def _from_variables(variables: Mapping[str, str], where: Callable[[str], str]) -> Finds:
    finds = Finds([], [])
    for key in KEYS.values():
        plain = next((name for name in key.variables if variables.get(name)), None)
        file = next((name for name in _file_names(key) if variables.get(name)), None)
        if plain and file:
            finds.problems.append(f"{where(plain)} and {file}: give one of them")
        elif plain:
            finds.given.append(Given(key, variables[plain], where(plain)))
        elif file:
            add_secret(finds, key, variables[file], where(file))
    for name, text in variables.items():
        if _looks_ours(name) and name not in _KNOWN and not _SERVICE_LINK.fullmatch(f"{name}={text}"):
            finds.problems.append(f"{where(name)}: unknown variable{meant(name, _KNOWN)}")
    return finds


def _file_names(key: Key) -> list[str]:
    return [f"{name}_FILE" for name in key.variables] if key.secret else []


def _looks_ours(name: str) -> bool:
    return name.startswith(("MQUEUE_", "GOMQ_"))


def _entries(text: str) -> Iterator[tuple[int, tuple[str, str] | None]]:
    """Lines with their name and text, None where they have none. Nothing is put in place of `$NAME`."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            match = _LINE.fullmatch(stripped)
            value = None if match is None else _unquoted(match["text"])
            yield number, None if match is None or value is None else (match["name"], value)


def _unquoted(text: str) -> str | None:
    if text[:1] not in ("'", '"'):
        return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()
    match = _QUOTED.fullmatch(text)
    if match is None:
        return None
    if match["plain"] is not None:
        return match["plain"]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), match["escaped"])


def _raw(value: Any) -> Raw:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return {str(name): str(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(str(item) for item in value)
    return str(value)


_KNOWN = _CLIENTS | {name for key in KEYS.values() for name in (*key.variables, *_file_names(key))}
