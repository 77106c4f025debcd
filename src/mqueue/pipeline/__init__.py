"""The data pipeline: messages in Spark, and back. Imports without PySpark; what needs it imports it when called."""
