"""`mqueue shards`: what servers have, one more of them, and virtual shards that go from one to another."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import json

from mqueue.cluster.founding import found
from mqueue.log.postgres.appends import append
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.owning import unowned
from mqueue.testing import PostgresServer
from tests.integration.terminal import Terminal
from tests.postgres.shards import new_topic, sheet


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    return Terminal(monkeypatch, tmp_path)


def test_a_cluster_grows_and_shrinks(
    postgres: PostgresServer, database: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = postgres.create(f"{database.rpartition('/')[2]}_other")
    monkeypatch.setenv("DATABASE_URLS", database)
    assert terminal.run("shards", "add", other).code != 0, "there is no cluster yet"
    first = Link(database, "test")
    found(first, [database])
    done = terminal.run("shards", "add", other)
    assert (done.code, f"{other.rpartition('@')[2]} is server 1 now" in done.out) == (0, True)
    done = terminal.run("shards", "rebalance")
    assert "the cluster has 2 servers, and DATABASE_URLS names 1" in done.err
    monkeypatch.setenv("DATABASE_URLS", f"{database},{other}")
    assert terminal.run("shards", "rebalance", "--dry-run").lines == ["512 virtual shards: server 0 → 1"]
    done = terminal.run("shards", "rebalance", "-o", "json")
    moved = [vshard for one in json.decode(done.out) for vshard in one["vshards"]]
    assert (done.code, len(moved), len(unowned(first))) == (0, 512, 512)
    listed = json.decode(terminal.run("shards", "-o", "json").out)
    assert [server["vshards"] for server in listed["servers"]] == [512, 512]
    assert terminal.run("shards", "rebalance").lines == ["nothing is to be moved"]
    topic = terminal.run("shards", "move", "orders", "--to", "0")
    assert (topic.code, topic.lines[-1] in ("1 virtual shards moved", "nothing is to be moved")) == (0, True)
    assert terminal.run("shards", "drain", "1").code == 0
    assert len(unowned(first)) == 1024
    first.call("update mqueue.vshards set state = 'moved', moved_to = '1', map_epoch = 9 where vshard = 7")
    done = terminal.run("shards", "list")
    assert (done.code, "virtual shard 7: it went from server 0 to server 1" in done.err) == (1, True)
    first.close()


def test_what_is_out_of_date_goes(
    postgres: PostgresServer, database: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server was set back to before two virtual shards left it; of one of them it has something."""
    urls = [database, postgres.create(f"{database.rpartition('/')[2]}_other")]
    monkeypatch.setenv("DATABASE_URLS", ",".join(urls))
    links = [Link(url, "test") for url in urls]
    found(links[0], urls)
    topic = new_topic(links[0], "old", 6)
    append(links[0], [sheet(topic, count=3, vshard=6)], None)
    assert terminal.run("shards", "move", "6", "--to", "1", "--force").code == 0
    assert terminal.run("shards", "move", "8", "--to", "1", "--force").code == 0
    assert terminal.run("shards", "move", "--drop-stale").lines[-1].endswith("of 0 virtual shards")
    links[0].call("update mqueue.vshards set state = 'active', map_epoch = 1, moved_to = null where vshard in (6, 8)")
    topic = new_topic(links[0], "old", 6)
    append(links[0], [sheet(topic, count=3, vshard=6)], None)
    assert terminal.run("shards", "rebalance").code != 0
    asked = terminal.run("shards", "move", "--drop-stale")
    assert asked.code != 0
    assert "server 0 has 3 messages of virtual shards that went on at server 1: 6, 8" in asked.err
    assert "(stale)" in terminal.run("shards", "list").err
    dropped = terminal.run("shards", "move", "--drop-stale", "--yes", "-o", "json")
    assert (dropped.code, json.decode(dropped.out)) == (0, {"dropped": [6, 8]})
    assert terminal.run("shards", "list").code == 0
    assert links[0].call("select count(*) from mqueue.frames") == [(0,)]
    assert links[1].call("select count(*) from mqueue.frames") == [(1,)]
    assert terminal.run("shards", "rebalance").code == 0
    assert len(unowned(links[0])) == len(unowned(links[1])) == 512
    for link in links:
        link.close()


WRONG = {
    "move": "say what to move and --to where",
    "move 7": "say what to move and --to where",
    "move --undo --drop-stale": "say what to move and --to where",
    "move --resume --undo": "say what to move and --to where",
    "move 9-3 --to 0": "the first of them is larger than the last",
    "move 1024 --to 0": "virtual shard 1024; there are 0 to 1023",
    "move 7 --to 5": "server 5; there are 0 to 0",
    "move what? --to 0": "does not match",
    "drain 3": "server 3; there are 0 to 0",
    "drain 0": "there is no other server",
}


def test_what_makes_no_sense_is_refused(database: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URLS", database)
    first = Link(database, "test")
    found(first, [database])
    for words, why in WRONG.items():
        done = terminal.run("shards", *words.split())
        assert (done.code, why in done.err) == (4, True), (words, done.err)
    assert len(unowned(first)) == 1024
    first.close()
