"""All access to bytes: small objects and Lance tables, on local disk and on S3.

Only this package imports Lance and the object store. Callers see types of this package and the
errors of ``omnigraph.errors``.
"""
