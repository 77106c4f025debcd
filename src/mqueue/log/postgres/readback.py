"""What became of frames whose statement was sent and not answered: read back from the primary.

First whoever ran the statement has to be gone, so that what is found is the end of it: it ended with its server, or is
ended now. Then the frames are there or they are not. If they are, the standbys that a commit waits for have to confirm
it still: a commit whose wait was cut short is seen all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqueue.log.postgres.appends import Appended, Sheet, confirmed
from mqueue.log.postgres.arrays import Longs
from mqueue.log.postgres.link import END_BACKEND, Link
from mqueue.log.postgres.problems import lost
from mqueue.log.postgres.seen import Backend

_END_MS = 1_000

_FIND = (
    "select k.i, f.base, f.at from unnest(%b::bigint[]) with ordinality k (id, i)"
    " cross join lateral (select base, at from mqueue.frames where base_id = k.id"
    " union all select base - base_id + k.id, at from mqueue.frames_kept"
    " where base_id >= k.id and base_id < k.id + 4096 limit 1) f"
)


def read_back(link: Link, before: Backend, sheets: Sequence[Sheet], *, quorum: bool = False) -> list[Appended] | None:
    """Where they are; None: they are not there, and will not be. `before`: who ran the statement.

    Raises ShardDown if it cannot be told now.
    """
    now = link.reach()
    if not before.outlived_by(now):
        _end(link, before)
    rows = link.call(_FIND, (Longs(sheet.base_id for sheet in sheets),))
    if not rows:
        return None
    confirm(link, quorum=quorum)
    found = {i: Appended(base, at) for i, base, at in rows}
    if len(found) < len(sheets):
        raise lost(link.server, f"{len(found)} of {len(sheets)} frames are there, which went together")
    return [found[number] for number in range(1, len(sheets) + 1)]


def confirm(link: Link, *, quorum: bool) -> None:
    """Wait until the standbys that commits wait for have everything that is visible now: they get what is written in
    order. `quorum`: raises NoQuorum if there are none."""
    if not quorum:
        link.call("select pg_logical_emit_message(true, 'mqueue', '')")
        return
    confirmed(link, link.call("select mqueue.check_quorum(), pg_logical_emit_message(true, 'mqueue', '')::text"))


def _end(link: Link, before: Backend) -> None:
    """End a process of the server, if it is there, and wait until it is not."""
    ended = link.call(END_BACKEND, (_END_MS, before.pid, before.begun))
    if ended and not ended[0][0]:
        raise lost(link.server, f"process {before.pid}, which ran the statement, does not end")
