"""What commands print: results, progress, pages, hints."""
