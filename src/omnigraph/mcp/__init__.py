"""A graph for agents: its stored queries, and what agents do with a graph, as MCP tools.

``toolbox`` has the tools, without the protocol; ``protocol`` is the only module that imports the
package ``mcp``. The command ``omnigraph mcp`` serves a graph in the process over standard input and
output, a server the same tools over HTTP.
"""
