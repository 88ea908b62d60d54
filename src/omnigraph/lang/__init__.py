"""The two languages: ``.pg`` schemas and ``.gq`` queries, from text to checked, typed trees.

No I/O, and no dependency on storage or Spark.
"""
