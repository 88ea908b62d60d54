"""Talking to an OmniGraph server over HTTP."""

from omnigraph.client.http import Connection

__all__ = ["Connection"]
