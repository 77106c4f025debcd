"""Stands in for `mqueue.Broker(path)` until there is one: checksummed records in one file, through the real disk."""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from mqueue.log.segments import disk as disks
from mqueue.model.times import duration_ms

HEAD = struct.Struct("<IIBQ")
PUBLISHED, ACKED = 1, 2


@dataclass
class Message:
    id: int
    payload: bytes
    broker: Broker

    def ack(self) -> None:
        self.broker.ack([self])


class Broker:
    def __init__(self, path: str, clock: Any = None) -> None:
        self._now = clock.now if clock else lambda: time.time_ns() // 1_000_000
        self._lock = threading.Lock()
        self._disk = disks.RealDisk(os.path.join(path, "data"))
        self._disk.lock()
        there = "log" in self._disk.list()
        self._file = self._disk.open("log", create=not there)
        self._disk.sync_dir()
        self._waiting: dict[int, bytes] = {}
        self._leased: dict[int, int] = {}
        self._next = self._end = 0
        self._recover()

    def _recover(self) -> None:
        data = self._disk.pread(self._file, self._disk.size(self._file), 0)
        while self._end + HEAD.size <= len(data):
            crc, length, kind, id = HEAD.unpack_from(data, self._end)
            stop = self._end + HEAD.size + length
            if not kind or stop > len(data) or zlib.crc32(data[self._end + 4 : stop]) != crc:
                break
            self._fold(kind, id, data[self._end + HEAD.size : stop])
            self._end = stop
        self._disk.truncate(self._file, self._end)

    def _fold(self, kind: int, id: int, payload: bytes) -> None:
        self._next = max(self._next, id + 1)
        if kind == PUBLISHED:
            self._waiting[id] = payload
        else:
            self._waiting.pop(id, None)

    def _append(self, records: list[tuple[int, int, bytes]]) -> None:
        data = b""
        for kind, id, payload in records:
            body = HEAD.pack(0, len(payload), kind, id)[4:] + payload
            data += struct.pack("<I", zlib.crc32(body)) + body
        self._disk.pwrite(self._file, data, self._end)
        self._disk.sync(self._file)
        self._end += len(data)
        for record in records:
            self._fold(*record)

    def publish(self, topic: str, payload: bytes) -> Any:
        return self.publish_many(topic, [payload])[0]

    def publish_many(self, topic: str, payloads: list[bytes]) -> list[Any]:
        with self._lock:
            ids = range(self._next, self._next + len(payloads))
            self._append([(PUBLISHED, id, payload) for id, payload in zip(ids, payloads, strict=True)])
        return [SimpleNamespace(id=id) for id in ids]

    def receive(self, topic: str, limit: int, wait: str = "", visibility: str = "30s") -> list[Message]:
        with self._lock:
            now = self._now()
            free = [id for id in self._waiting if self._leased.get(id, 0) <= now][:limit]
            self._leased.update(dict.fromkeys(free, now + duration_ms(visibility)))
            return [Message(id, self._waiting[id], self) for id in free]

    def ack(self, messages: list[Message]) -> None:
        with self._lock:
            self._append([(ACKED, message.id, b"") for message in messages])

    def close(self) -> None:
        self._disk.close(self._file)
        self._disk.unlock()
