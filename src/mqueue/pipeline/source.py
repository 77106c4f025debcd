"""The data source `mqueue`, as Spark sees it: `spark.read.format("mqueue")`, `readStream`, `write`, `writeStream`.

    spark.read.format("mqueue").option("servers", "http://127.0.0.1:8080").option("subscribe", "orders").load()

Spark makes one of these per load or save, in a process on the driver. Nothing here talks to the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from mqueue.model.errors import BadSetting
from mqueue.pipeline.connection import Connection, connection_of, without_secrets
from mqueue.pipeline.options import options_of, shape_of
from mqueue.pipeline.plain import plainly
from mqueue.pipeline.schema import spark_schema, spark_types
from mqueue.pipeline.ship import Carried

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

    from mqueue.pipeline.reading import Reading


class MqueueDataSource(Carried, DataSource):
    """Messages of a server, by offset. `session_token` is the one of the Spark session, if it has one."""

    session_token: ClassVar[str | None] = None

    @plainly
    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self.options = without_secrets(given)
        self._connection: Connection = connection_of(given, self.session_token)

    @classmethod
    def name(cls) -> str:
        return "mqueue"

    @plainly
    def schema(self) -> str:
        return spark_schema(*shape_of(self.options))

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from mqueue.pipeline.reader import MqueueReader

        return MqueueReader(self._reading(schema, streaming=False))

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from mqueue.pipeline.stream_reader import MqueueStreamReader

        return MqueueStreamReader(self._reading(schema, streaming=True))

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from mqueue.pipeline.writer import MqueueWriter

        return MqueueWriter(self.options, schema, overwrite, self._connection.token)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from mqueue.pipeline.stream_writer import MqueueStreamWriter

        return MqueueStreamWriter(self.options, schema, overwrite, self._connection.token)

    def _reading(self, schema: StructType, streaming: bool) -> Reading:
        from mqueue.pipeline.reading import Reading

        options = options_of(self.options, streaming)
        return Reading(self._connection, options, _projected(options.view, schema))


def _projected(view: str, schema: StructType) -> tuple[str, ...]:
    """The columns that a user's schema asks for: each one of the view, with the type that it has there."""
    allowed = spark_types(view)
    for field in schema.fields:
        wanted, found = allowed.get(field.name), field.dataType.simpleString()
        if wanted is None:
            raise BadSetting(f"the schema asks for column {field.name!r:.80}; view {view} has {', '.join(allowed)}")
        if wanted != found:
            raise BadSetting(
                f"the schema asks for column {field.name} as {found:.80}; it is {wanted}: cast it after load()"
            )
        if not field.nullable:
            raise BadSetting(f"the schema says that column {field.name} is not null; leave NOT NULL out")
    return tuple(schema.fieldNames())
