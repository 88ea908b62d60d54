"""The output of commands: results, progress, paging, hints."""
