"""Archived messages as tables of files: Delta, Iceberg or plain Parquet. Knows neither Spark nor servers."""

from mqueue.lake.files import DataFile
from mqueue.lake.lake import Appended, At, Compacted, Lake
from mqueue.lake.opening import FORMATS, open_lake
from mqueue.lake.writer import Writer

__all__ = ["FORMATS", "Appended", "At", "Compacted", "DataFile", "Lake", "Writer", "open_lake"]
