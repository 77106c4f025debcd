"""Found by Spark by its name: after `pip install mqueue[spark]` there is `spark.read.format("mqueue")`."""
