"""The commit protocol: one manifest makes many tables one graph with one version."""
