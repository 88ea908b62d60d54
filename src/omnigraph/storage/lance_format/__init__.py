"""Lance files and messages parsed by hand where its Python API does not expose their content."""
