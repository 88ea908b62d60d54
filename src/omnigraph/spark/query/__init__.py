"""Executes the plan of a query on Spark.

Spark frames have the row ids of the variables, one column each, and the weight of each row: joins,
groups and sorts work on 64-bit integers. Properties are read only in the workers, as Arrow, with
the expressions of the embedded engine.
"""
