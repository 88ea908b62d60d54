"""The Spark session of this process, and running functions as its tasks."""
