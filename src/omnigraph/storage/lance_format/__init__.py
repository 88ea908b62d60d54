"""Files of Lance parsed by hand, where its Python API does not show what they hold."""
