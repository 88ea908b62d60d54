"""Loads whose records are read, checked and written by Spark tasks."""
