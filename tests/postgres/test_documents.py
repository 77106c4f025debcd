"""Documents that all nodes share: of two who change one at once, one has to read it again."""

from __future__ import annotations

from collections.abc import Callable

from mqueue.log.postgres import documents
from mqueue.log.postgres.link import Link
from tests.postgres.shards import together


def test_a_document_is_written_by_who_has_read_it(link: Link) -> None:
    assert documents.read(link, "keys") is None
    assert documents.version(link, "keys") == 0
    assert not documents.write(link, "keys", 1, b"of a version that never was")
    assert documents.write(link, "keys", 0, b"first")
    assert not documents.write(link, "keys", 0, b"also first")
    assert documents.read(link, "keys") == (1, b"first")
    assert documents.write(link, "keys", 1, b"second")
    assert not documents.write(link, "keys", 1, b"also second")
    assert documents.read(link, "keys") == (2, b"second")
    assert (documents.version(link, "keys"), documents.version(link, "quotas")) == (2, 0)


def test_nothing_is_lost_though_all_change_it_at_once(links: Callable[[], Link]) -> None:
    """Each adds ten letters of its own, one at a time."""

    def add(own: Link, letter: bytes) -> None:
        for _ in range(10):
            while True:
                version, body = documents.read(own, "letters") or (0, b"")
                if documents.write(own, "letters", version, body + letter):
                    break

    together(
        [
            lambda own=own, letter=letter: add(own, letter)
            for own, letter in zip((links(), links(), links()), (b"a", b"b", b"c"), strict=True)
        ]
    )
    version, body = documents.read(links(), "letters") or (0, b"")
    assert version == 30
    assert bytes(sorted(body)) == b"a" * 10 + b"b" * 10 + b"c" * 10
