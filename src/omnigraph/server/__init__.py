"""The HTTP server: ``omnigraph serve`` and ``omnigraph-server``.

Only this package knows HTTP, tokens and processes. A supervisor starts reader processes and one
writer process; each runs the same application on its own handles of the graphs.
"""
