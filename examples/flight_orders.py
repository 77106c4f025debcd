"""Arrow Flight, with Arrow's own client: publish record batches, consume some of them, scan the log."""

import json
from typing import Any

import pyarrow as pa
from pyarrow import flight

from mqueue.config import Address, Config, Server
from mqueue.testing.server import RunningServer


def publish(client: flight.FlightClient) -> None:
    batch = pa.record_batch({"payload": [b"tea", b"rice", b"salt"], "key": [b"a", b"b", b"a"]})
    writer, receipts = client.do_put(flight.FlightDescriptor.for_path("orders"), batch.schema)
    with writer:
        writer.write_batch(batch)
        receipt = json.loads(receipts.read().to_pybytes())
    print("published:", receipt["count"])


def consume(client: flight.FlightClient) -> None:
    asked = flight.FlightDescriptor.for_command(json.dumps({"topic": "orders", "group": "billing"}))
    commands, answers = client.do_exchange(asked)

    def ask(**command: Any) -> tuple[Any, Any]:
        commands.write_metadata(json.dumps(command).encode())
        chunk = answers.read_chunk()
        return json.loads(chunk.app_metadata.to_pybytes()), chunk.data

    with commands:
        told, batch = ask(receive={"limit": 2, "wait": "10s"})
        print("received:", batch["payload"].to_pylist())
        told, _ = ask(ack={"lease": told["receive"]["lease"]})
        print("acked:", told["ack"]["settled"])
        ask(receive={"limit": 1})  # what is unsettled when the stream ends goes to others


def scan(client: flight.FlightClient) -> None:
    asked = {"topic": "orders", "columns": ["offset", "payload"], "start": 1}
    info = client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps(asked)))
    for endpoint in info.endpoints:
        print("scanned:", client.do_get(endpoint.ticket).read_all().to_pylist())


def main() -> None:
    listening = Config(server=Server(grpc=Address("127.0.0.1", 0)))
    # Or: mqueue serve, and grpc://127.0.0.1:9000
    with RunningServer(listening) as server, flight.connect(f"grpc://{server.addresses['grpc']}") as client:
        publish(client)
        consume(client)
        scan(client)


if __name__ == "__main__":
    main()
# → published: 3
# → received: [b'tea', b'rice']
# → acked: 2
# → scanned: [{'offset': 1, 'payload': b'rice'}, {'offset': 2, 'payload': b'salt'}]
