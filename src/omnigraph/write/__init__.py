"""Everything that changes data in one process."""
