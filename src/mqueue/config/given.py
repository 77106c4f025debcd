"""What the sources hand over: a value for a key with the place it stands at, and the sentences about what is wrong.

Does not know what a value means.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct

from mqueue.config.keys import Key
from mqueue.config.kinds import Raw
from mqueue.model.errors import BadSetting

SECRET_BYTES_MAX = 64 * 1024


class BadConfig(BadSetting):
    """Everything that is wrong with a configuration, at once: a sentence each in `problems`."""

    code = "bad_config"

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("the configuration is refused:\n" + "\n".join(f"  {problem}" for problem in self.problems))


class Given(Struct, frozen=True):
    """`where` names the place and the key as the user wrote it; it begins the sentence when the value is wrong. `lost`
    says why there is no value to be read, although one was meant."""

    key: Key
    raw: Raw
    where: str
    lost: str | None = None


class Finds(Struct, frozen=True):
    """What one source holds."""

    given: list[Given]
    problems: list[str]


def meant(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?` with the nearest name, or nothing."""
    by_shape = {_shape(word): word for word in known}
    near = get_close_matches(_shape(name), by_shape, n=1, cutoff=0.7)
    return f"; did you mean {by_shape[near[0]]}?" if near else ""


def read_text(path: str | Path, bytes_max: int) -> str:
    """A small file of UTF-8, or ValueError with a sentence that shows nothing of it."""
    try:
        with open(path, "rb") as file:
            content = file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read: {getattr(error, 'strerror', None) or 'no such path'}") from error
    if len(content) > bytes_max:
        raise ValueError(f"is longer than {bytes_max} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error


def add_secret(finds: Finds, key: Key, path: str, where: str) -> None:
    """The content of a file, without the newline that editors put at its end."""
    try:
        text = read_text(path, SECRET_BYTES_MAX).removesuffix("\n").removesuffix("\r")
    except ValueError as error:
        finds.given.append(Given(key, None, where, lost=f"{where}: the file {path!r:.80} {error}"))
    else:
        finds.given.append(Given(key, text, where))


def _shape(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
