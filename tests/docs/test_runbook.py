"""What docs/runbook.md tells somebody to do at night exists: metrics, commands, statements, links."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.request import urlopen

import pytest

from mqueue.cli.main import command
from mqueue.config import Cluster, Config, Data, Redis, Secret, Telemetry
from mqueue.log.postgres.link import Link
from mqueue.testing import PostgresServer, RedisServer
from mqueue.testing.server import RunningServer

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "runbook.md").read_text(encoding="utf-8")
METRIC = re.compile(r"\bmqueue_[a-z_]+[a-z]\b")
SAMPLE = re.compile(r"^(mqueue_[a-z_]+)", re.MULTILINE)
SHELL = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
INLINE = [line for line in re.findall(r"`(mqueue [^`\n]+)`", PAGE) if "…" not in line]
COMMANDS = sorted({line.partition("  #")[0].strip() for line in [*SHELL, *INLINE] if line.startswith("mqueue ")})
STATEMENTS = [
    one.strip() for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL) for one in block.split(";") if one.strip()
]
ALARMS = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)


def exported(url: str) -> set[str]:
    with urlopen(f"{url}/metrics") as answer:
        page: str = answer.read().decode()
    named = re.findall(r"^# TYPE (mqueue_[a-z_]+)", page, re.MULTILINE)
    return {*SAMPLE.findall(page), *named}


def test_every_metric_that_is_named_is_exported(postgres: PostgresServer, database: str, tmp_path: Path) -> None:
    found: set[str] = set()
    kept = Config(data=Data(dir=str(tmp_path / "data")), telemetry=Telemetry("http://127.0.0.1:1/v1/traces"))
    with RedisServer() as redis, RunningServer(kept, memory=False) as alone:
        addresses = (f"127.0.0.1:{redis.port}",)
        cluster = Cluster((Secret(database),), redis=Redis(addresses, password=Secret(redis.password)))
        with RunningServer(Config(cluster=cluster)) as node:
            for url in (alone.url, node.url):
                found |= exported(url)
    named = {name for name in METRIC.findall(PAGE) if name not in ("mqueue_shard", "mqueue_topic")}
    assert len(named) > 30
    assert named - found == set()


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_one(line: str) -> None:
    """Its verb is there, and takes these words; nothing is done."""
    words = shlex.split(line)[1:]
    found = command()
    while hasattr(found, "commands") and words:
        name = words.pop(0)
        assert name in found.commands, f"{line!r}: there is no {name!r}"
        found = found.commands[name]
    options = {option for param in found.params for option in [*param.opts, *param.secondary_opts]} | {"--help"}
    assert [word for word in words if word.startswith("--") and word not in options] == []


def test_there_are_commands_and_statements() -> None:
    assert len(COMMANDS) > 15
    assert len(STATEMENTS) > 10


@pytest.fixture(scope="module")
def shard(postgres: PostgresServer):
    from mqueue.log.postgres.migrate import migrate

    link = Link(postgres.create("runbook"), "runbook")
    migrate(link)
    yield link
    link.close()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_statement_runs(shard: Link, statement: str) -> None:
    shard.call(statement.replace("%", "%%"))  # type: ignore[arg-type]


@pytest.mark.parametrize("alarm", [alarm for alarm in ALARMS if not alarm.startswith("A node is restarted")])
def test_every_alarm_says_what_whoever_is_called_needs(alarm: str) -> None:
    part = PAGE.split(f"## {alarm}\n")[1].split("\n## ")[0]
    for word in ("Alarm", "Means", "Look", "Do", "Over"):
        assert f"**{word}**" in part


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        file, _, anchor = target.partition("#")
        text = PAGE if not file else (DOCS / file).read_text(encoding="utf-8")
        anchors = {re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in _heads(text)}
        assert not anchor or anchor in anchors, target


def _heads(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)
