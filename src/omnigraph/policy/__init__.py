"""Who may do what: bundles of rules and their decisions.

Knows nothing of HTTP, tokens or graphs. ``Policy`` decides by the rules of one bundle; whoever asks
(the server at its boundary, an open graph before each write) only knows ``Decider`` or
``WriteGate``, so another way to decide can take its place.
"""
