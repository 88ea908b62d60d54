"""The two languages: ``.pg`` schemas and ``.gq`` queries, from text to checked meaning.

No I/O happens here and nothing here knows storage or Spark.
"""
