"""Where the command line goes and as whom: flags, environment, contexts; and the verbs that talk to nobody."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import mqueue
from mqueue.cli import contexts, exits
from mqueue.cli.contexts import Book, Context, read_book, write_book
from mqueue.cli.main import app
from mqueue.cli.target import DEFAULT_URL, Flags, resolve
from mqueue.model import errors
from tests.integration.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
CANARY = "canary-token-5f1c"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    return Terminal(monkeypatch, tmp_path)


# Where to

BOOK = Book("prod", {"prod": Context("https://prod", "t-prod", "tenant"), "bare": Context("http://bare")})
ENVIRON = {"MQUEUE_TOKEN": "t-env", "MQUEUE_NAMESPACE": "n-env"}


@pytest.mark.parametrize(
    ("flags", "environ", "book", "url", "token", "namespace"),
    [
        (Flags(), {}, Book(), DEFAULT_URL, None, None),
        (Flags(), ENVIRON, Book(), DEFAULT_URL, "t-env", "n-env"),
        (Flags(), {}, BOOK, "https://prod", "t-prod", "tenant"),
        (Flags(), {"MQUEUE_URL": "http://env"}, BOOK, "http://env", None, None),
        (Flags(), {"MQUEUE_URL": ""}, BOOK, "https://prod", "t-prod", "tenant"),
        (Flags(), {"MQUEUE_CONTEXT": "bare"}, BOOK, "http://bare", None, None),
        (Flags(), {"MQUEUE_CONTEXT": "bare", **ENVIRON}, BOOK, "http://bare", "t-env", "n-env"),
        (Flags(url="http://flag"), {}, BOOK, "http://flag", None, None),
        (Flags(url="http://flag", namespace="n"), ENVIRON, BOOK, "http://flag", "t-env", "n"),
        (Flags(context="bare"), {"MQUEUE_URL": "http://env", **ENVIRON}, BOOK, "http://bare", None, None),
        (Flags(context="prod", token="t-flag", namespace="n"), ENVIRON, BOOK, "https://prod", "t-flag", "n"),
    ],
)
def test_what_is_said_most_plainly_counts(
    flags: Flags, environ: dict[str, str], book: Book, url: str, token: str | None, namespace: str | None
) -> None:
    found = resolve(flags, environ, lambda: book)
    assert (found.url, found.token, found.namespace) == (url, token, namespace)


def test_the_book_is_not_opened_where_it_has_no_say() -> None:
    def never() -> Book:
        raise AssertionError

    assert resolve(Flags(url="memory:"), {}, never).url == "memory:"
    assert resolve(Flags(), {"MQUEUE_URL": "memory:"}, never).url == "memory:"


def test_a_token_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{CANARY}\n")
    assert resolve(Flags(token_file=str(file)), {}, Book).token == CANARY
    assert resolve(Flags(), {"MQUEUE_TOKEN_FILE": str(file)}, Book).token == CANARY


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff", b"x" * 70_000], ids=["empty", "blank", "bytes", "long"])
def test_a_file_without_a_token_is_refused(terminal: Terminal, content: bytes) -> None:
    Path("token").write_bytes(content)
    done = terminal.run("topics", "--url", "memory:", "--token-file", "token")
    assert done.code == 4
    assert "token" in done.err
    assert "xxx" not in done.err


@pytest.mark.parametrize(
    "words",
    [["--url", "memory:", "--context", "c"], ["--token", "a", "--token-file", "b"], ["--token-file", "not-there"]],
)
def test_places_that_make_no_sense(terminal: Terminal, words: list[str]) -> None:
    Path("b").write_text("t")
    assert terminal.run("topics", *words).code == 4


def test_a_url_that_leads_nowhere(terminal: Terminal) -> None:
    done = terminal.run("topics", "--url", "gopher://somewhere")
    assert done.code == 4
    assert done.err.startswith("mqueue: ")
    assert done.err.count("\n") == 1


def test_a_directory_that_somebody_else_has_open(terminal: Terminal) -> None:
    with mqueue.Broker("data"):
        assert terminal.run("topics", "--url", "file:data").code == 5
    assert terminal.run("topics", "--url", "file:data").code == 0


# Contexts


def test_contexts_are_remembered_used_and_forgotten(terminal: Terminal) -> None:
    assert terminal.run("context").lines == ["current  name  url  namespace  token"]
    assert terminal.run("context", "set", "here", "--url", "file:data").code == 0
    done = terminal.run(
        "context", "set", "prod", "--url", "https://mq", "-n", "t-1", "--token-file", "-", "--ca", "ca", stdin=CANARY
    )
    assert done.code == 0
    listed = terminal.run("context", "-o", "json")
    assert CANARY not in listed.out + terminal.run("context").out
    assert listed.json == [
        {"current": True, "name": "here", "url": "file:data", "namespace": "default", "token": False},
        {"current": False, "name": "prod", "url": "https://mq", "namespace": "t-1", "token": True},
    ]
    kept = read_book(terminal.home / "mqueue/contexts.toml").contexts["prod"]
    assert (kept.token, kept.ca) == (CANARY, str(terminal.home / "ca"))
    assert CANARY not in repr(kept)
    assert terminal.run("produce", "orders", "a").code == 0
    assert terminal.run("topics", "--url", "file:data").lines == ["orders"]
    assert terminal.run("context", "use", "prod").code == 0
    assert terminal.run("topics", "--context", "here").lines == ["orders"]
    assert terminal.run("context", "delete", "prod").code == 0
    assert [(c["name"], c["current"]) for c in terminal.run("context", "-o", "json").json] == [("here", False)]


def test_the_book_is_for_its_owner_alone(terminal: Terminal) -> None:
    terminal.run("context", "set", "prod", "--url", "http://x", "--token-file", "-", stdin=CANARY)
    path = terminal.home / "mqueue/contexts.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    done = terminal.run("topics")
    assert done.code == 4
    assert "chmod 600" in done.err
    assert CANARY not in done.err
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("text", ["current = ", "[contexts.a]\ncolour = 'red'", "\xff", f"token = {CANARY}"])
def test_a_book_that_cannot_be_read_says_so(terminal: Terminal, text: str) -> None:
    path = terminal.home / "mqueue/contexts.toml"
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))
    done = terminal.run("topics")
    assert done.code == 4
    assert "contexts.toml" in done.err
    assert CANARY not in done.err
    assert terminal.run("topics", "--url", "memory:").code == 0


def test_contexts_that_are_not_there_or_badly_named(terminal: Terminal) -> None:
    for words in (["context", "use", "x"], ["context", "delete", "x"], ["topics", "--context", "x"]):
        assert terminal.run(*words).code == 3
    assert terminal.run("context", "set", "a b", "--url", "memory:").code == 4
    assert terminal.run("context", "set", "a").code == 2


def test_whatever_is_in_a_context_is_read_as_it_was_written(tmp_path: Path) -> None:
    strange = Context("http://x", 'a"b\\c\n\t\x00\x7f\u2028é😀', "n", "/c a", "/d", "/e")
    book = Book("a.b", {"a.b": strange, "c": Context("memory:")})
    write_book(tmp_path / "deep/book.toml", book)
    assert read_book(tmp_path / "deep/book.toml") == book


def test_a_book_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "book.toml"
    write_book(path, BOOK)

    def fail(*paths: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(contexts.os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        write_book(path, Book())
    assert read_book(path) == BOOK
    assert os.listdir(tmp_path) == [path.name]


# Configuration


def test_a_configuration_is_checked_and_shown(terminal: Terminal) -> None:
    Path("good.yaml").write_text("defaults: {delivery: {maxRetries: 7}}\n")
    assert terminal.run("config", "check", "-c", "good.yaml").code == 0
    assert "maxRetries: 7" in terminal.run("config", "show", "-c", "good.yaml").out
    assert terminal.run("config", "show", "-o", "json").json["defaults"]["delivery"]["maxRetries"] == 3
    terminal.set("MQUEUE_CONFIG", "good.yaml")
    assert terminal.run("config", "path").lines == [str(terminal.home / "good.yaml")]


def test_a_bad_configuration_is_told_in_full(terminal: Terminal) -> None:
    Path("bad.yaml").write_text("brooker: {}\ndefaults: {delivery: {maxRetries: often}}\n")
    for verb in (["config", "check"], ["config", "show"], ["serve"]):
        done = terminal.run(*verb, "-c", "bad.yaml")
        assert (done.code, done.out) == (2, "")
        assert "brooker" in done.err
        assert "often" in done.err
    assert terminal.run("config", "path").code == 3
    assert terminal.run("config").code == 2


def test_secrets_of_a_configuration_are_not_shown(terminal: Terminal) -> None:
    terminal.set("MQUEUE_JWT_SECRET", CANARY * 3)
    shown = terminal.run("config", "show")
    assert shown.code == 0
    assert CANARY not in shown.out + shown.err


@pytest.mark.parametrize(
    "words", [["--tls", "yes"], ["--set", "novalue"], ["--set", "no.such.key=1"], ["--memory", "--data-dir", "d"]]
)
def test_a_server_that_is_told_nonsense_does_not_start(terminal: Terminal, words: list[str]) -> None:
    done = terminal.run("serve", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err


# Worker


@pytest.mark.parametrize("place", ["nothing", "no_such_module_here:app", "json:nothing", "json:loads"])
def test_a_worker_that_is_not_there(terminal: Terminal, place: str) -> None:
    done = terminal.run("worker", place, "--url", "memory:")
    assert done.code == 4
    assert place.split(":")[0] in done.err


def test_a_worker_goes_where_it_is_told(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.run("produce", "orders", "a", "--url", "file:data")
    Path("shop_for_cli.py").write_text(
        "import mqueue, os\n"
        "app = mqueue.Worker()\n"
        "@app.handler('orders')\n"
        "async def ship(order: str) -> None:\n"
        "    print('shipped', order, os.environ.get('MQUEUE_TOKEN'), os.environ['MQUEUE_NAMESPACE'])\n"
        "    app.stop()\n"
    )
    monkeypatch.syspath_prepend(str(terminal.home))
    terminal.run("context", "set", "here", "--url", "file:data", "-n", "default")
    terminal.set("MQUEUE_TOKEN", "meant for another place")
    done = terminal.run("worker", "shop_for_cli:app", "--context", "here", "-c", 1)
    assert (done.code, done.out) == (0, "shipped a None default\n")
    assert "MQUEUE_URL" not in os.environ
    assert "MQUEUE_TOKEN" in os.environ
    assert terminal.run("peek", "orders", "--url", "file:data").code == 3


# The whole


def verbs(command: Any, words: tuple[str, ...] = ()) -> list[str]:
    if not hasattr(command, "commands"):
        return [" ".join(words)]
    return [verb for name, below in command.commands.items() for verb in verbs(below, (*words, name))]


def test_every_verb_has_its_line_in_the_docs() -> None:
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `mqueue ([a-z -]+?)(?: [A-Z\[][^`]*)?` \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(verbs(get_command(app)))
    assert len(rows) == len(set(rows))


def test_every_exit_code_is_in_the_docs() -> None:
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    ours = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert told == ours | {70}


@pytest.mark.parametrize("words", [[], ["dlq"], ["dlq", "redrive"], ["produce"], ["config"], ["context"]])
def test_help_is_there_for_every_level(terminal: Terminal, words: list[str]) -> None:
    done = terminal.run(*words, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: {' '.join(['mqueue', *words])} ")


def test_help_names_what_is_there_and_nothing_else(terminal: Terminal) -> None:
    shown = terminal.run("--help").out
    for section in ("Use:", "Manage:", "Run:"):
        assert section in shown
    listed = set(re.findall(r"^  ([a-z][a-z-]*)  ", shown, re.MULTILINE))
    assert listed == {verb.split()[0] for verb in verbs(get_command(app))}


def test_unknown_words_are_a_usage_error(terminal: Terminal) -> None:
    done = terminal.run("prodcue", "orders")
    assert done.code == 2
    assert "produce" in done.err
    assert terminal.run("stats", "--colour").code == 2
    assert terminal.run().code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(terminal: Terminal, shell: str) -> None:
    done = terminal.run("completion", shell)
    assert done.code == 0
    assert f"_MQUEUE_COMPLETE=complete_{shell}" in done.out
    assert terminal.run("completion", "tcsh").code == 2


@pytest.mark.parametrize(
    ("words", "number", "found"),
    [
        ("mqueue pro", 1, ["produce"]),
        ("mqueue dlq ", 2, ["list", "errors", "redrive", "delete"]),
        ("mqueue peek --lim", 2, ["--limit"]),
        ("mqueue stats -o nd", 3, ["ndjson"]),
    ],
)
def test_completion_answers(terminal: Terminal, words: str, number: int, found: list[str]) -> None:
    terminal.set("_MQUEUE_COMPLETE", "complete_bash")
    terminal.set("COMP_WORDS", words)
    terminal.set("COMP_CWORD", str(number))
    assert terminal.run().lines == found


def test_the_version_is_the_package_s(terminal: Terminal) -> None:
    assert terminal.run("version").out == f"mqueue {mqueue.__version__}\n"


def error_classes() -> list[type[errors.Error]]:
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.Error)]


def test_errors_end_in_codes_that_can_be_told_apart() -> None:
    codes = {kind.__name__: exits.code_of(kind("why")) for kind in error_classes()}
    expected = {1: {"Error", "LeaseLost", "Conflict", "Expired", "Corrupt"}, 3: {"NotFound"}}
    expected[5] = {"Unavailable", "Backpressure", "ShardDown", "Stopping", "Closed", "Poisoned", "InUse"}
    expected[5] |= {"QuotaExceeded", "QueueFull", "DiskFull"}
    expected[4] = set(codes) - set().union(*expected.values())
    assert {"Refused", "BadName", "TooLarge", "Unauthorized", "Forbidden"} <= expected[4]
    assert codes == {name: code for code, names in expected.items() for name in names}


def test_what_a_server_says_plays_no_tricks_with_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    exits.complain("bad\x1b[2J\r\nnews\x9b")
    assert capsys.readouterr().err == "mqueue: bad\\x1b[2J\\r\nnews\\x9b\n"
