"""pandas, Polars and DuckDB over a topic, as Arrow Flight gives it: columns all the way."""

import json

import duckdb
import polars as pl
import pyarrow as pa
from pyarrow import flight

import mqueue
from mqueue.config import Address, Config, Server
from mqueue.testing.server import RunningServer

SALES = [{"item": item, "euros": euros} for item, euros in (("tea", 7), ("rice", 2), ("tea", 5))]


def scanned(client: flight.FlightClient, **asked: object) -> pa.Table:
    info = client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps(asked)))
    return pa.concat_tables([client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints])


def main() -> None:
    listening = Config(server=Server(grpc=Address("127.0.0.1", 0)))
    with RunningServer(listening) as server, mqueue.Client(server.url) as q:
        q.publish_many("sales", SALES)
        with flight.connect(f"grpc://{server.addresses['grpc']}") as client:
            table = scanned(client, topic="sales", columns=["offset", "published_at", "payload"])

    frame = table.to_pandas()
    frame["euros"] = frame["payload"].map(json.loads).str["euros"]
    print("pandas:", int(frame["euros"].sum()))

    kind = pl.Struct({"item": pl.String, "euros": pl.Int64})
    sales = pl.DataFrame(table).select(pl.col("payload").cast(pl.String).str.json_decode(kind)).unnest("payload")
    print("Polars:", sales.group_by("item").agg(pl.col("euros").sum()).sort("item").rows())

    asked = "select decode(payload) ->> 'item' as item, count(*) from sold group by item order by item"
    with duckdb.connect() as db:
        print("DuckDB:", db.register("sold", table).sql(asked).fetchall())


if __name__ == "__main__":
    main()
# → pandas: 14
# → Polars: [('rice', 2), ('tea', 12)]
# → DuckDB: [('rice', 1), ('tea', 2)]
