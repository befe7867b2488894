"""Old names of the public API, which work for one more release and warn."""

import warnings


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller of the function that calls this one."""
    message = f"{old} is now {new}; the old name goes with the next release"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
