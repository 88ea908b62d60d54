"""The Spark session of this process, and functions run as its tasks."""
