"""Everything that touches bytes: small objects and Lance tables, on local disk and on S3.

Only this room knows Lance and the object store; both speak to the rest through their own types
and the errors of ``omnigraph.errors``.
"""
