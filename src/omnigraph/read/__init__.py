"""The embedded engine: runs a plan on one snapshot over Arrow and NumPy."""
