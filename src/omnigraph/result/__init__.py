"""What a query returns, in every form users want it."""
