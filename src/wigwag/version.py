"""The version, in one place: the build reads it too."""

__version__ = "0.2.0"
