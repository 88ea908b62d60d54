"""The job that fills vector properties from texts."""
