"""Arrow's own Flight client, as tests use it: every call has a deadline, nothing else is hidden."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyarrow import flight

from mqueue.config import Address, Config, Server
from mqueue.testing.server import RunningServer

DEADLINE_SECONDS = 120
PAYLOAD = pa.schema([("payload", pa.binary())])


def with_flight(**more: Any) -> Config:
    """A configuration with the listener on."""
    return Config(server=Server(grpc=Address("127.0.0.1", 0)), **more)


def batch(*payloads: bytes, **columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"payload": pa.array(payloads, pa.binary()), **columns})


class Flying:
    """A connection."""

    def __init__(self, server: RunningServer, token: str | None = None, **options: Any) -> None:
        scheme = "grpc+tls" if server.url.startswith("https") else "grpc"
        self.client = flight.connect(f"{scheme}://localhost:{server.addresses['grpc'].port}", **options)
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self.options = flight.FlightCallOptions(timeout=DEADLINE_SECONDS, headers=headers)

    def put(self, descriptor: Any, *batches: pa.RecordBatch) -> list[Any]:
        """Publish batches, each after the receipt of the one before, unless there is one at the end; the receipts."""
        one_by_one = not isinstance(descriptor, dict) or descriptor.get("receipts") != "end"
        writer, reader = self.client.do_put(described(descriptor), batches[0].schema, self.options)
        receipts = []
        with writer:
            for each in batches:
                writer.write_batch(each)
                if one_by_one:
                    receipts.append(reader.read())
            writer.done_writing()
            while (last := reader.read()) is not None:
                receipts.append(last)
        return [json.loads(receipt.to_pybytes()) for receipt in receipts if receipt is not None]

    def info(self, descriptor: Any) -> flight.FlightInfo:
        return self.client.get_flight_info(described(descriptor), self.options)

    def scan(self, descriptor: Any) -> pa.Table:
        """All endpoints, one after the other."""
        info = self.info(descriptor)
        found = [self.get(endpoint.ticket) for endpoint in info.endpoints]
        return pa.concat_tables(found) if found else info.schema.empty_table()

    def get(self, ticket: Any) -> pa.Table:
        asked = flight.Ticket(json.dumps(ticket)) if isinstance(ticket, dict) else ticket
        return self.client.do_get(asked, self.options).read_all()

    def act(self, name: str, **body: Any) -> Any:
        [answer] = self.client.do_action((name, json.dumps(body).encode()), self.options)
        return json.loads(answer.body.to_pybytes())

    def exchange(self, descriptor: Any) -> Exchange:
        return Exchange(*self.client.do_exchange(described(descriptor), self.options))


class Exchange:
    """A consumer."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer, self._reader = writer, reader

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def tell(self, **command: Any) -> None:
        self._writer.write_metadata(json.dumps(command).encode())

    def ask(self, **command: Any) -> Any:
        self.tell(**command)
        return self.next()

    def next(self) -> Any:
        """The next answer; its batch under `batch`."""
        chunk = self._reader.read_chunk()
        return {**json.loads(chunk.app_metadata.to_pybytes()), "batch": chunk.data}

    def receive(self, limit: int = 1, **more: Any) -> tuple[str | None, list[bytes]]:
        answer = self.ask(receive={"limit": limit, **more})
        found = answer["batch"]
        return answer["receive"]["lease"], [] if found is None else found["payload"].to_pylist()

    def cancel(self) -> None:
        self._reader.cancel()


def described(descriptor: Any) -> flight.FlightDescriptor:
    """A name, a path or a command."""
    if isinstance(descriptor, dict):
        return flight.FlightDescriptor.for_command(json.dumps(descriptor))
    return flight.FlightDescriptor.for_path(*([descriptor] if isinstance(descriptor, str) else descriptor))


def numbered(count: int, first: int = 0) -> Iterable[bytes]:
    return [b"%d" % number for number in range(first, first + count)]
