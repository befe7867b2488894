"""The environment of child processes: an explicit list of variables, without secrets.

A program that is not ours (a browser, its driver, an optimiser) and a child that renders documents
of others get `child_environment`. A worker process runs the code of its workload, whose variables
are unknown here, so it gets `worker_environment`: all but the secrets that workers do not use.
"""

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
    """The variables that any program may have, and those of ``names``.

    They come from ``environment``, or else from the environment of this process.
    """
    environment = os.environ if environment is None else environment
    locale = [name for name in environment if name.startswith("LC_")]
    passed = _NAMES.union(names, locale)
    return {name: value for name, value in environment.items() if name in passed}


def worker_environment(*, opens_secrets: bool) -> dict[str, str]:
    """The environment of a worker process; ``opens_secrets``: its work reads sealed secrets."""
    from kesin.foundation.settings import variable  # children that render start without it

    removed = {variable("cron_secret")}  # read by the service alone
    removed |= set() if opens_secrets else {variable("secret_keys")}
    # The names of settings are read in any case.
    return {name: value for name, value in os.environ.items() if name.upper() not in removed}
