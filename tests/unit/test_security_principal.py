"""Rights: each verb needs its scope, in its namespace, on its topic, and nothing looks like something else."""

from __future__ import annotations

import pytest

from mqueue.model.errors import BadSetting, Forbidden
from mqueue.server.security.principal import GRANTS_MAX, Principal, is_subject, parse_grant, parse_grants

VERBS = ("publish", "receive", "settle", "read", "manage")
GIVES = {
    "read": {"receive", "settle", "read"},
    "write": {"publish"},
    "admin": set(VERBS),
    "*": set(VERBS),
}


def principal(*grants: str) -> Principal:
    return Principal("svc", parse_grants(grants))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("scope", GIVES)
@pytest.mark.parametrize(
    ("granted", "namespace", "topic", "covered"),
    [
        ("a", "a", None, True),
        ("a", "a", "t", True),
        ("a", "b", "t", False),
        ("a", "b", None, False),
        ("a", "*", None, False),
        ("*", "a", "t", True),
        ("*", "*", None, True),
        ("a/t", "a", "t", True),
        ("a/t", "a", None, False),
        ("a/t", "a", "u", False),
        ("a/t", "b", "t", False),
        ("*/t", "b", "t", True),
        ("*/t", "b", "u", False),
    ],
)
def test_the_matrix(verb, scope: str, granted: str, namespace: str, topic: str | None, covered: bool) -> None:
    who = principal(f"{scope}:{granted}")
    expected = covered and verb in GIVES[scope]
    assert who.allows(verb, namespace, topic) is expected
    if expected:
        who.demand(verb, namespace, topic)
    else:
        with pytest.raises(Forbidden):
            who.demand(verb, namespace, topic)


@pytest.mark.parametrize("verb", VERBS)
def test_without_grants_nothing_is_allowed(verb) -> None:
    assert not principal().allows(verb, "a", "t")
    assert not principal().allows(verb, "*")


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("team-a", "team-a", True),
        ("team-a", "team-ab", False),
        ("team-a", "xteam-a", False),
        ("team-a", "team-a.x", False),
        ("team-a", "Team-a", False),
        ("team-a", "team-a\n", False),
        ("team-a.*", "team-a.x", True),
        ("team-a.*", "team-a.x.y", True),
        ("team-a.*", "team-a", False),
        ("team-a.*", "team-a.", False),
        ("team-a.*", "team-ab.x", False),
        ("team-a.*", "x.team-a.x", False),
        ("a.b", "axb", False),
        ("orders", "orders.dlq", True),
        ("orders", "orders.dlq.dlq", True),
        ("orders.*", "orders.dlq", False),
        ("orders.*", "orders.eu.dlq", True),
        ("orders.dlq", "orders.dlq", True),
        ("orders.dlq", "orders", False),
        ("*", "anything", True),
    ],
)
def test_topic_patterns_are_anchored(pattern: str, topic: str, matches: bool) -> None:
    assert principal(f"read:ns/{pattern}").allows("read", "ns", topic) is matches


def test_namespaces_are_not_patterns() -> None:
    who = principal("read:team-a")
    assert who.allows("read", "team-a")
    for other in ("team-ab", "team-", "team-a.x", "TEAM-A", "", "team-a/"):
        assert not who.allows("read", other, "t")


@pytest.mark.parametrize(
    "text",
    [
        *("", "read", "read:", ":a", "root:a", "READ:a", "read:a/", "read:team-a*", "read:a/team-a*", "read:a/*.x"),
        *("read:a/x.*.y", "read:a/.*", "read:a/**", "read:a:b", "read:a/b/c", "read:..", "read:a b", "read:\u0430"),
        *("read:a/\x00", "read:" + "a" * 250, "read :a", " read:a", "read:a\n"),
    ],
)
def test_a_grant_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        parse_grant(text)


def test_grants_are_bounded_and_counted_once() -> None:
    assert len(parse_grants(["read:a"] * 1000)) == 1
    with pytest.raises(BadSetting):
        parse_grants(f"read:n{i}" for i in range(GRANTS_MAX + 1))


def test_scopes_of_two_grants_do_not_mix() -> None:
    who = principal("read:a", "write:b")
    assert who.allows("read", "a")
    assert who.allows("publish", "b")
    assert not who.allows("publish", "a")
    assert not who.allows("read", "b")


@pytest.mark.parametrize("subject", ["svc", "a@b.example", "team one", "Zoë", "spiffe://x/y"])
def test_good_subjects(subject: str) -> None:
    assert is_subject(subject)


@pytest.mark.parametrize(
    "subject",
    ["", " a", "a\n", "a\x00", "a\u202eb", "a\u200bb", "\ud800", "ａdmin", "e\u0301", "x" * 256, 1, None, ["a"]],
)
def test_subjects_that_look_like_others_are_refused(subject: object) -> None:
    assert not is_subject(subject)
