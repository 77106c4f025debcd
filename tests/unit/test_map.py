"""Where virtual shards are, by what servers say: the highest epoch is right, and contradictions are named."""

from __future__ import annotations

from mqueue.cluster.atlas import STAYS_SECONDS, Atlas
from mqueue.cluster.map import Move, judge, told
from mqueue.log.postgres.moving import Row
from mqueue.policy.routing import VIRTUAL_SHARDS
from mqueue.policy.spread import emptied, evened, in_turn


def active(vshard: int, epoch: int) -> Row:
    return Row(vshard, "active", epoch, 0, None, None, "none")


def moved(vshard: int, epoch: int, to: int, remains: str = "needed") -> Row:
    return Row(vshard, "moved", epoch, 0, to, None, remains)


def incoming(vshard: int, came_from: int, epoch: int = 0) -> Row:
    return Row(vshard, "incoming", epoch, 0, None, came_from, "none")


REST = [active(vshard, 1) for vshard in range(1, VIRTUAL_SHARDS)]


def test_a_move_and_what_is_said_at_each_step() -> None:
    steps = [
        ([active(0, 1)], [], 0, ()),
        ([active(0, 1)], [incoming(0, 0)], 0, (Move(0, 0, 1, False),)),
        ([moved(0, 2, 1)], [incoming(0, 0)], None, (Move(0, 0, 1, True),)),
        ([moved(0, 2, 1)], [], None, (Move(0, 0, 1, True),)),
        ([moved(0, 2, 1)], [active(0, 2)], 1, ()),
        ([moved(0, 2, 1, "none")], [active(0, 2)], 1, ()),
        ([incoming(0, 1, 2)], [active(0, 2)], 1, (Move(0, 1, 0, False),)),
        ([incoming(0, 1, 2)], [moved(0, 3, 0)], None, (Move(0, 1, 0, True),)),
        ([active(0, 3)], [moved(0, 3, 0)], 0, ()),
    ]
    for first, second, home, moves in steps:
        found = judge({0: REST + first, 1: second}, 2)
        assert (found.homes.get(0), found.moves, found.troubles) == (home, moves, ()), (first, second)


def test_contradictions_are_named_and_not_believed() -> None:
    cases = [
        ([active(0, 1)], [active(0, 2)], 1, [("stale", 0)]),
        ([active(0, 1)], [moved(0, 3, 2)], None, [("stale", 0)]),
        ([active(0, 2)], [active(0, 2)], None, [("twice", None)]),
        ([moved(0, 2, 1, "none")], [], None, [("lost", None)]),
        ([moved(0, 2, 1, "free")], [incoming(0, 0)], None, [("lost", None)]),
        ([], [], None, [("nowhere", None)]),
    ]
    for first, second, home, troubles in cases:
        found = judge({0: REST + first, 1: second, 2: []}, 3)
        named = [(trouble.code, trouble.place) for trouble in found.troubles]
        assert (found.homes.get(0), named) == (home, troubles), (first, second)
        assert "virtual shard 0: " in told(found.troubles)


def test_a_server_that_is_away_may_have_it() -> None:
    found = judge({0: [*REST, moved(0, 2, 1, "none")]}, 2)
    assert (found.homes.get(0), found.targets[0], found.moves, found.troubles) == (None, 1, (), ())
    assert judge({0: REST}, 2).troubles == ()


def test_what_does_not_stay_is_no_trouble() -> None:
    """Two servers are looked at one after the other: of what has moved meanwhile both say that they have it."""
    now = [100.0]
    atlas = Atlas(2, monotonic=lambda: now[0])
    both = dict.fromkeys(range(VIRTUAL_SHARDS), 1)
    assert atlas.tell(0, both, [], 1.0) == frozenset()
    assert atlas.tell(1, {0: 2}, [], 2.0) == frozenset()
    assert atlas.map.homes[0] == 1
    assert atlas.tell(0, both, [], 3.0) == {0}, "refused at once"
    assert atlas.troubles() == []
    now[0] += STAYS_SECONDS
    assert [trouble.code for trouble in atlas.troubles()] == ["stale"]
    del both[0]
    gone = [moved(0, 2, 1)]
    assert atlas.tell(0, both, gone, 5.0) == frozenset()
    assert atlas.tell(0, dict.fromkeys(range(VIRTUAL_SHARDS), 1), [], 4.0) == frozenset(), "asked for earlier"
    assert atlas.troubles() == []
    assert atlas.unfinished() == {(0, 1)}


def test_why_something_is_not_served() -> None:
    atlas = Atlas(2)
    atlas.tell(0, {}, [moved(0, 2, 1), moved(1, 2, 7), moved(2, 2, 1, "none")], 1.0)
    assert "server 1, which cannot be reached" in atlas.missing(0).message
    atlas.tell(1, {}, [incoming(0, 0)], 1.0)
    assert atlas.missing(0).code == "not_owner"
    unknown = atlas.missing(1)
    assert (unknown.code, "server 7, which this node does not know" in unknown.message) == ("shard_down", True)
    assert atlas.missing(3).code == "not_owner", "no server has it, but that may be a matter of moments"


def test_servers_are_evened_by_as_few_as_possible() -> None:
    assert evened({0: 512, 1: 512, 2: 0}) == {(0, 2): 170, (1, 2): 171}
    assert evened({0: 342, 1: 341, 2: 341}) == {}
    assert evened({0: 1024}) == evened({}) == {}
    assert evened({0: 0, 1: 1024}) == {(1, 0): 512}
    assert emptied({0: 342, 1: 341, 2: 341}, 0) == {(0, 1): 171, (0, 2): 171}
    assert emptied({0: 5}, 0) == {}


def test_nodes_lose_in_turn() -> None:
    """So that none has too many meanwhile, and gives some away."""
    owners = {vshard: vshard % 2 for vshard in range(6)}
    assert in_turn(range(6), owners) == [1, 0, 3, 2, 5, 4]
    assert in_turn([0, 2, 1], owners) == [1, 0, 2]
    assert in_turn([9], owners) == [9]
