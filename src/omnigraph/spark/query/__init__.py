"""The plan of a query on Spark.

Frames of Spark hold row ids, one column for each variable, and how often a row counts: joins,
groups and order work on 64-bit numbers. Everything that looks at a property happens in the
workers, on Arrow, with the expressions of the embedded engine.
"""
