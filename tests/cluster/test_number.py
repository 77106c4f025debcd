"""The number of a node: renewed in time, given up before anybody else can have it, and taken anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mqueue.cluster.number import HOURS, NodeNumber
from mqueue.log.postgres import nodes
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.migrate import migrate
from mqueue.model.errors import Backpressure, Unavailable
from mqueue.model.ident import EPOCH_MS, SLOT_IDS, instant_of, node_of
from mqueue.model.limits import ID_AHEAD_MS_MAX

NOW = EPOCH_MS + 1_000_000
DAY_SECONDS = HOURS * 3600


class Elapsed:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def elapsed() -> Elapsed:
    return Elapsed()


@pytest.fixture
def number(database: str, elapsed: Elapsed) -> Iterator[Callable[[], NodeNumber]]:
    """`number()`: that of one more node, taken."""
    links: list[Link] = []
    made: list[NodeNumber] = []

    def take() -> NodeNumber:
        links.append(Link(database, f"number{len(links)}", 60_000))
        migrate(links[-1])
        made.append(NodeNumber(links[-1], elapsed=elapsed))
        made[-1].take()
        return made[-1]

    yield take
    for one in made:
        one.drop()
    for link in links:
        link.close()


@pytest.fixture
def server(database: str) -> Iterator[Link]:
    link = Link(database, "server", 60_000)
    yield link
    link.close()


def end(server: Link, number: int) -> None:
    """As if a day had passed at the server."""
    server.call("update mqueue.nodes set until = clock_timestamp() where node_id = %b", (number,))


def test_it_is_renewed_for_another_day(number, elapsed: Elapsed, server: Link) -> None:
    one = number()
    before = server.call("select until from mqueue.nodes")
    for _ in range(3):
        elapsed.seconds += DAY_SECONDS / 2
        assert one.run_once()
        assert node_of(one.ids.take(1, NOW)) == 1
    assert server.call("select until from mqueue.nodes") > before


def test_who_could_not_renew_it_gives_out_no_ids_before_the_server_lends_it_again(
    number, elapsed: Elapsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = number()

    def unreachable(*given: object) -> bool:
        raise Unavailable("nobody is there")

    with monkeypatch.context() as patch:
        patch.setattr(nodes, "renew_node", unreachable)
        elapsed.seconds = DAY_SECONDS * 0.98
        assert not one.run_once()
        one.ids.take(1, NOW)
        elapsed.seconds = DAY_SECONDS * 0.995
        for ask in (one.ids.take, one.ids.check):
            with pytest.raises(Unavailable, match="this node may publish nothing: its number has ended") as caught:
                ask(1, NOW)
            assert (caught.value.code, caught.value.status, caught.value.applied) == ("no_node_number", 503, False)
            assert caught.value.retryable
    assert one.run_once()  # at the server it was still ours
    assert node_of(one.ids.take(1, NOW)) == 1


def test_who_has_lost_it_takes_another_and_its_ids_go_on(number, server: Link) -> None:
    one = number()
    last = one.ids.take(4096, NOW)
    end(server, 1)
    other = number()
    assert one.run_once()
    assert one.number not in (0, other.number)
    fresh = one.ids.take(1, NOW)
    assert (node_of(fresh), fresh > last + 4095) == (one.number, True)


def test_two_that_were_both_forgotten_never_share_one(number, server: Link) -> None:
    held = [number() for _ in range(3)]
    for _ in range(5):
        for one in held[:2]:
            end(server, one.number)
        for one in held:
            assert one.run_once()
        assert len({one.number for one in held}) == 3


def test_it_is_given_back(number, server: Link) -> None:
    one = number()
    one.drop()
    assert server.call("select until <= clock_timestamp() from mqueue.nodes") == [(True,)]
    with pytest.raises(Unavailable):
        one.ids.take(1, NOW)


def test_servers_whose_clocks_are_apart_share_the_ids_of_a_node(number, elapsed: Elapsed) -> None:
    """One is 90 s ahead: the others are published to all the same, and ids rise whoever asks."""
    ids = number().ids
    given = []
    for _ in range(1000):
        elapsed.seconds += 0.01
        for skew in (90_000, 0, -90_000):
            now = NOW + round(elapsed.seconds * 1000) + skew
            ids.check(1, now)
            given.append(ids.take(1, now))
            assert now <= instant_of(given[-1]) <= NOW + round(elapsed.seconds * 1000) + 90_001
    assert given == sorted(set(given))


def test_ids_run_ahead_of_the_latest_clock_by_a_minute_at_most(number, elapsed: Elapsed) -> None:
    ids = number().ids
    ids.take(1, NOW + 90_000)
    for _ in range(ID_AHEAD_MS_MAX):
        ids.take(SLOT_IDS, NOW)
    with pytest.raises(Backpressure) as caught:
        ids.take(SLOT_IDS, NOW)
    assert caught.value.code == "id_clock_ahead"
    elapsed.seconds += 1
    assert instant_of(ids.take(SLOT_IDS, NOW)) > NOW + 90_000 + ID_AHEAD_MS_MAX
