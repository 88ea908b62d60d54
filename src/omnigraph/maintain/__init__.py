"""Derived state and housekeeping: indexes first, more to come."""
