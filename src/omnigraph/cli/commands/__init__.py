"""The commands; a module has one command, or several related ones, like ``load``."""
