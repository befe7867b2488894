"""The environments of child processes, without secrets that they do not use."""

import os
from collections.abc import Mapping
from typing import Final

_NAMES: Final = frozenset(
    (
        # The machine and the user.
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "TZDIR"),
        *("LANG", "LANGUAGE", "LD_LIBRARY_PATH", "SYSTEMROOT"),
        # Folders and fonts.
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_DATA_DIRS"),
        *("XDG_CONFIG_DIRS", "XDG_RUNTIME_DIR", "FONTCONFIG_FILE", "FONTCONFIG_PATH"),
        # Our own interpreter.
        *("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "PYTHONIOENCODING"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONHASHSEED"),
        *("PYTHONWARNINGS", "COVERAGE_PROCESS_CONFIG"),
    )
)


def child_environment(*names: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """For foreign programs and for what renders documents: listed variables, and ``names``."""
    environment = os.environ if environment is None else environment
    passed = _NAMES.union(names, [name for name in environment if name.startswith("LC_")])
    return {name: value for name, value in environment.items() if name in passed}


def worker_environment(*, opens_secrets: bool) -> dict[str, str]:
    """For worker processes, whose code reads any variable: all but secrets it does not need."""
    from kesin.foundation.settings import variable  # children that render start without it

    removed = {variable("cron_secret")}  # read by the service alone
    removed |= set() if opens_secrets else {variable("secret_keys")}
    # The names of settings are read in any case.
    return {name: value for name, value in os.environ.items() if name.upper() not in removed}
