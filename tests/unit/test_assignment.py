"""Who gets which partition: even within one, sticky, and no more moves than have to be."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqueue.policy.assignment import assign

NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f", "g"])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(NAMES, unique=True, max_size=7), st.lists(NAMES | st.just(""), max_size=20))
def test_even_and_sticky(members: list[str], owners: list[str]) -> None:
    targets = assign(members, owners)
    assert len(targets) == len(owners)
    if not members:
        assert set(targets) <= {""}
        return
    counts = Counter(dict.fromkeys(members, 0))
    counts.update(targets)
    assert set(counts) == set(members)
    assert max(counts.values()) - min(counts.values()) <= 1
    moved = sum(owner in members and owner != target for owner, target in zip(owners, targets, strict=True))
    assert moved == _least(members, owners)
    assert assign(members, targets) == targets


def _least(members: list[str], owners: list[str]) -> int:
    """What is above the shares, if those who have most may keep one more."""
    share, more = divmod(len(owners), len(members))
    held = sorted((owners.count(member) for member in members), reverse=True)
    return sum(max(0, count - share - (place < more)) for place, count in enumerate(held))


def test_a_new_member_gets_its_share_of_those_who_have_most() -> None:
    assert assign(["a", "b", "c"], ["a", "a", "a", "b", "b", "b"]) == ["a", "a", "c", "b", "b", "c"]


def test_what_the_last_one_had_goes_to_those_who_have_least() -> None:
    assert assign(["a", "b"], ["a", "", "b", ""]) == ["a", "a", "b", "b"]
