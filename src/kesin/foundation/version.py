"""The version of Kesin."""

__version__ = "0.1.0"
