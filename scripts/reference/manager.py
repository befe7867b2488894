"""The manager script: the script of one site, with another main and no site of its own."""

from __future__ import annotations

import re

from .text import ROOT

FOLDER = ROOT / "scripts" / "google-ads-oci"
MAIN = "function main() {\n  serveSite(readSettings(), Date.now());\n}\n"


def manager_script() -> str:
    """One file to paste: the part of the manager stands where the other script has its main."""
    script = (FOLDER / "GoogleAdsScript.js").read_text("utf-8")
    head, _, part = (FOLDER / "manager-part.js").read_text("utf-8").partition(" */\n")
    body = "'use strict';" + script.partition("'use strict';")[2]
    body, n = re.subn(r"(?m)^  siteId: '.*\n", "", body)
    assert n == 2, "the setting and its property"  # noqa: PLR2004, S101
    # What the script remembers, it remembers for each site.
    body, n = re.subn(r"(get|set)Property\((\w+_AT)\b", r"\1Property(`${\2}_${client.siteId}`", body)
    assert n, "the time of the last list"  # noqa: S101
    assert body.count(MAIN) == 1  # noqa: S101
    key = "a key for this site with"
    assert body.count(key) == 1  # noqa: S101
    body = body.replace(key, "a key for all sites with").replace(MAIN, f"{part.strip()}\n")
    return f"{head} */\n{body}"
