"""The handlers: one function per operation, from a ``Call`` to a ``Reply``. They run on threads."""
