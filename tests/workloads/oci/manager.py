"""The real manager script in a JavaScript engine: each account runs in a copy of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests.workloads.oci.script import FILE, Killed, Script, ScriptFailed, _Thrown

MANAGER_FILE = FILE.with_name("ManagerScript.js")
MOST_ACCOUNTS = 50  # Google refuses more

GOOGLE_OF_MANAGERS = """
const account = AdsApp.currentAccount;
AdsApp.currentAccount = () => Object.assign(account(), { getCustomerId: () => host('customerId') });
const AdsManagerApp = {
  accounts: () => {
    const chosen = { ids: null, limit: null };
    const selector = {
      withIds: (ids) => { chosen.ids = ids; return selector; },
      withLimit: (limit) => { chosen.limit = limit; return selector; },
      get: () => {
        const ids = host('accounts', chosen);
        return {
          hasNext: () => ids.length > 0,
          next: () => { const id = ids.shift(); return { getCustomerId: () => id }; },
        };
      },
      executeInParallel: (name, callback, input) => {
        host('executeInParallel', chosen, name, callback, input);
      },
    };
    return selector;
  },
};
const resultOf = (result) => ({
  getCustomerId: () => result.account,
  getStatus: () => result.status,
  getReturnValue: () => result.value,
  getError: () => result.error,
});
"""


@dataclass
class ManagerScript(Script):
    """The script of a manager account, and the accounts below it."""

    file: ClassVar[Path] = MANAGER_FILE
    more_of_google: ClassVar[str] = GOOGLE_OF_MANAGERS

    accounts: set[str] = field(default_factory=set)  # with dashes
    throwing: set[str] = field(default_factory=set)  # accounts in which every upload throws
    killed: set[str] = field(default_factory=set)  # accounts whose run Google ends at once
    served: list[str] = field(default_factory=list)  # accounts of the last run, in order
    _current: str = ""
    _parallel: tuple[str, str, str] | None = None

    def run(self) -> None:
        """Run it as Google does: main, then each account by itself, then the callback."""
        self.served, self._parallel = [], None
        self.evaluate("main()")
        if self._parallel is None:
            return
        name, callback, text = self._parallel
        results: list[dict[str, Any]] = []
        for account in list(self.served):
            result: dict[str, Any] = {"account": account, "status": "OK"}
            self._current, self.dead = account, False
            self.apply_throws = "the upload fails here" if account in self.throwing else ""
            if account in self.killed:
                results.append(result | {"status": "TIMEOUT"})
                continue
            try:
                result["value"] = self.evaluate(f"{name}({json.dumps(text)})")
            except (ScriptFailed, Killed) as problem:
                result |= {"status": "ERROR", "error": str(problem)}
            results.append(result)
        self._current = ""
        self.evaluate(f"{callback}({json.dumps(results)}.map(resultOf))")

    def _select(self, chosen: dict[str, Any]) -> list[str]:
        if len(chosen["ids"]) > MOST_ACCOUNTS or chosen["limit"] != MOST_ACCOUNTS:
            raise _Thrown("Too many accounts")
        return [account for account in chosen["ids"] if account in self.accounts]

    # What the script asks of Google

    def google_customerId(self) -> str:  # noqa: N802
        return self._current

    def google_accounts(self, chosen: dict[str, Any]) -> list[str]:
        return self._select(chosen)

    def google_executeInParallel(  # noqa: N802
        self, chosen: dict[str, Any], name: str, callback: str, text: str
    ) -> None:
        self.served, self._parallel = self._select(chosen), (name, callback, text)
