"""Nodes lend each other what they do not need of their quotas and rates, over Redis, a few times a second.

    <prefix>:wants                  hash: "<node>:<namespace>" -> "<until>:<number>:<parts>", by Redis's clock
    <prefix>:quota:<namespace>      parts of tokens that somebody has lent and nobody has taken yet; gone after seconds
    <prefix>:rate_wants             the same two for calls, by the addresses that they come from
    <prefix>:rate:<address>

Who is short says so in `wants`, and takes what he finds in the pool of that namespace; who sees it puts there what he
can do without, once for each time it was said. What is in a pool was taken out of somebody's bucket before, and what
Redis loses is spent: so it can lose everything. A Redis that goes back in time could show a pool again that was taken;
pools live for seconds, and what is older is gone by its own clock.

No call waits for this: it is done by a thread, in one or two round trips each time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from msgspec import Struct
from redis import Redis

from mqueue.cluster.redis.line import Away, Line
from mqueue.cluster.shares import SharedQuotas

LOGGER = logging.getLogger("mqueue.cluster")

TICK_SECONDS = 0.2
_POOL_MS = 3_000
_WANT_MS = 1_000
_WANTS_MS = 60_000
_TURN_MS = 120_000

# KEYS: wants, then the pools of what we are short of. ARGV: node, how long a want counts, how long `wants` is kept, the
# number of this call; of each pool its namespace, what is missing each time, and what once. Answers what was taken from
# each pool, and what others want.
_MEET = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local taken, others = {}, {}
for i = 2, #KEYS do
  local name, again, once = ARGV[3 * i - 1], tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1])
  local there = tonumber(redis.call('GET', KEYS[i]) or '0')
  local take = math.min(there, math.max(again, once))
  if take > 0 then redis.call('DECRBY', KEYS[i], string.format('%.0f', take)) end
  taken[i - 1] = string.format('%.0f', take)
  local field = ARGV[1] .. ':' .. name
  local want = math.max(again, once - take)
  if want > 0 then
    redis.call('HSET', KEYS[1], field, string.format('%.0f:%s:%.0f', now + ARGV[2], ARGV[4], want))
  else
    redis.call('HDEL', KEYS[1], field)
  end
end
if #KEYS > 1 then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if tonumber(string.match(all[i + 1], '^%d+')) < now then
    redis.call('HDEL', KEYS[1], all[i])
  elseif string.match(all[i], '^%d+') ~= ARGV[1] then
    others[#others + 1] = all[i]
    others[#others + 1] = all[i + 1]
  end
end
return {taken, others}
"""


class Pots(Struct, frozen=True):
    """Where it is said what is wanted, and where what is lent lies, by the name of the bucket."""

    wants: bytes
    pool: Callable[[str], bytes]


def quota_pots(line: Line) -> Pots:
    return Pots(line.key("wants"), lambda namespace: line.key("quota", namespace))


def rate_pots(line: Line) -> Pots:
    return Pots(line.key("rate_wants"), lambda address: line.key("rate", address))


class Lender:
    """`node` is our number. `nodes` says how many there are, `now` the time that quotas go by."""

    def __init__(
        self,
        line: Line,
        quotas: SharedQuotas,
        node: int,
        nodes: Callable[[], int],
        now: Callable[[], int],
        pots: Callable[[Line], Pots] = quota_pots,
    ) -> None:
        self._line = line
        self._pots = pots(line)
        self._quotas = quotas
        self._node = node
        self._nodes = nodes
        self._now = now
        self._served: dict[str, str] = {}
        """The wants of others that something was lent for."""
        self._meetings = 0
        self.lent = 0
        """Parts of tokens that were given, and got."""
        self.borrowed = 0

    def join(self) -> None:
        """We are one of the nodes from now on."""
        self._quotas.join(self._nodes(), self._now())

    def run_once(self) -> None:
        quotas, now = self._quotas, self._now()
        quotas.share(self._nodes(), now)
        wants = quotas.wants(now)
        if quotas.unlimited or quotas.nodes == 1:
            return
        try:
            self._lend(self._meet(wants, now), now)
            quotas.lends = True
        except Away:
            quotas.lends = False

    def _meet(self, wants: dict[str, tuple[int, int]], now: int) -> list[tuple[int, str, int]]:
        """Say what we are short of and take what there is of it; which others are short of what, and how much."""
        keys = [self._pots.wants, *map(self._pots.pool, wants)]
        self._meetings += 1
        told = [
            self._node,
            _WANT_MS,
            _WANTS_MS,
            self._meetings,
            *(word for name, want in wants.items() for word in (name, *want)),
        ]
        answer: Any = self._line.do(lambda client: client.register_script(_MEET)(keys, told))
        for name, parts in zip(wants, answer[0], strict=True):
            self._quotas.borrow(name, int(parts), now)
            self.borrowed += int(parts)
        heard = dict(zip(map(bytes.decode, answer[1][::2]), map(bytes.decode, answer[1][1::2]), strict=True))
        fresh = {field: said for field, said in heard.items() if self._served.get(field) != said}
        self._served = heard
        return [(*_split(field), int(said.rpartition(":")[2])) for field, said in fresh.items()]

    def _lend(self, wanted: list[tuple[int, str, int]], now: int) -> None:
        """Each of the others gives his part of it. What is taken out here and does not get there is lost."""
        helpers, gifts = max(1, self._quotas.nodes - 1), []
        for node, name, parts in wanted:
            yields = _turn(node, now) < _turn(self._node, now)
            if given := self._quotas.lend(name, -(-parts // helpers), now, yields):
                gifts.append((name, given))
        if gifts:
            self._line.do(lambda client: self._put(client, gifts))
            self.lent += sum(parts for _, parts in gifts)

    def _put(self, client: Redis, gifts: list[tuple[str, int]]) -> None:
        with client.pipeline(transaction=True) as pipe:
            for name, parts in gifts:
                pipe.incrby(self._pots.pool(name), parts)
                pipe.pexpire(self._pots.pool(name), _POOL_MS)
            pipe.execute()


class Lending:
    """The thread in which all of that is done."""

    def __init__(self, lenders: Sequence[Lender]) -> None:
        self._lenders = lenders
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._live, name="mqueue-redis-quotas", daemon=True)

    def start(self) -> None:
        for lender in self._lenders:
            lender.join()
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _live(self) -> None:
        while not self._closing.wait(TICK_SECONDS):
            for lender in self._lenders:
                try:
                    lender.run_once()
                except Exception:
                    LOGGER.exception("quotas could not be lent")


def _split(field: str) -> tuple[int, str]:
    node, _, name = field.partition(":")
    return int(node), name


def _turn(node: int, now: int) -> int:
    """Whose turn it is, if several are short of what only one can have: the lowest. It changes, the same for all."""
    return crc32(b"%d:%d" % (now // _TURN_MS, node))
