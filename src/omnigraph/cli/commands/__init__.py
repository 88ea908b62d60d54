"""The commands; a module has one of them, or several that belong together, as ``load`` has."""
