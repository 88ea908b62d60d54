"""Writes of data: mutations, loads, appends, validation and staging."""
