"""Archived messages as tables of files: Delta, Iceberg or plain Parquet. Knows neither Spark nor servers."""
