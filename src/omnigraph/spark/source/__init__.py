"""The Spark data source ``omnigraph``."""
