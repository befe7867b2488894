"""The version of Kesin, and old names of its API, which work for one more release and warn."""

import warnings

__version__ = "0.1.0"


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller of the function that calls this one."""
    message = f"{old} is now {new}; the next release removes the old name"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
