"""The check of an XML before it goes to the machine."""

import os
from pathlib import Path

import pytest

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline.shared_folder import (
    MAX_XML_BYTES,
    FolderUnavailable,
    UnusableFile,
    read_plain_file,
)
from kesin.workloads.optiplan.pipeline.solution import MAX_DEPTH, check_xml

GOOD = b"""<?xml version="1.0" encoding="utf-8"?>
<Solutions>
  <Solution name="p001" algo="FGE" best="0" mqBoards="11.76"/>
  <Solution name="ddm01" algo="DDM" best="1" mqBoards="5.88" patterns="2" cycles="3" zcuts="0"
            jobTime="840" jobCost="12.5" mqDrops="0.75" diffDrops="4"><Layout/></Solution>
</Solutions>
"""
XSD = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
<xs:element name="Solutions"><xs:complexType><xs:sequence>
<xs:element name="Solution" maxOccurs="unbounded"><xs:complexType>
<xs:attribute name="patterns" type="xs:int"/></xs:complexType></xs:element>
</xs:sequence></xs:complexType></xs:element></xs:schema>"""


@pytest.fixture
def xml(tmp_path: Path) -> Path:
    return tmp_path / "plan.xml"


def refused(path: Path, xsd: Path | None = None) -> OrderProblem:
    with pytest.raises(OrderProblem) as caught:
        check_xml(path, xsd)
    assert caught.value.code == OptiCode.XML_INVALID
    assert caught.value.details["file"] == path.name
    return caught.value


def test_a_good_one_is_reported_in_figures(xml: Path):
    xml.write_bytes(GOOD)
    checked = check_xml(xml)
    assert (checked["solutions"], checked["size_bytes"]) == (2, len(GOOD))
    assert len(checked["sha256"]) == 64
    assert checked["best"] == {
        "name": "ddm01",
        "algo": "DDM",
        "mqBoards": 5.88,
        "patterns": 2,
        "cycles": 3,
        "zcuts": 0,
        "jobTime": 840,
        "jobCost": 12.5,
        "mqDrops": 0.75,
        "diffDrops": 4,
    }


def test_of_other_programs_only_what_makes_sense_is_reported(xml: Path):
    nonsense = f'patterns="two" mqBoards="nan" jobCost="inf" cycles="{"9" * 100}"'
    for text, solutions, best in (
        (
            f'<a><Solution name="p1" {nonsense} zcuts=" 7 "/><Solution name="p2"/></a>',
            2,
            {"name": "p1", "zcuts": 7},  # without a best, the first
        ),
        ('<a><Solution name="p1" mqDrops="0" jobCost="0.00"/></a>', 1, {"name": "p1", "mqDrops": 0}),  # no price
        ("<root><child/></root>", 0, {}),
        ('<x:a xmlns:x="urn:x"><x:Solution name="n"/></x:a>', 1, {"name": "n"}),
    ):
        xml.write_text(text)
        checked = check_xml(xml)
        assert (checked["solutions"], dict(checked["best"])) == (solutions, best)


def test_other_encodings_are_read_when_they_are_declared(xml: Path):
    for encoding in ("windows-1254", "iso-8859-9", "utf-16", "utf-8-sig"):
        declared = encoding.removesuffix("-sig")
        text = f'<?xml version="1.0" encoding="{declared}"?><a><Solution name="Meşe"/></a>'
        xml.write_bytes(text.encode(encoding))
        assert check_xml(xml)["best"] == {"name": "Meşe"}


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"", 1, "well-formed"),
        (b"secret", 1, "well-formed"),
        (b"<a>\n<secret>\n</a>", 3, "tag name mismatch"),
        (b"<a>\n<secret>", 2, "tag not finished"),
        (b"<a/><secret/>", 1, "document end"),
        (b"<a>\n\n\xffsecret</a>", 3, "encoding"),
        (b"<a>\n&secret;</a>", 2, "entity"),
        (b"<secret/>", 1, "no elements"),
        (b"<a>secret<!-- x --><?y z?></a>", 1, "no elements"),
        (b"<a>" + b"\n<secret>" * MAX_DEPTH + b"</secret>" * MAX_DEPTH + b"</a>", 101, "nested"),
        (b"<a><b>" + b"\0" + b"</b></a>", 1, "well-formed"),
    ],
)
def test_what_is_wrong_is_reported_with_its_line_and_without_what_stands_there(
    xml: Path, content: bytes, line: int, reason: str
):
    xml.write_bytes(content)
    problem = refused(xml)
    assert problem.details["line"] == line
    assert reason in problem.message
    assert "secret" not in f"{problem.message} {problem.details}"


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))


@pytest.mark.parametrize(
    "head",
    [
        f'<!DOCTYPE a [<!ENTITY l0 "ha">{LAUGHS}]>',
        '<!DOCTYPE a [<!ENTITY l11 SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE a [<!ENTITY % p SYSTEM "http://127.0.0.1:9/x.dtd"> %p; <!ENTITY l11 "x">]>',
        '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd">',
        '<!DOCTYPE a PUBLIC "-//x" "file:///etc/passwd">',
        "<!DOCTYPE a>",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_dtd_is_never_taken(xml: Path, head: str, encoding: str):
    text = f'<?xml version="1.0" encoding="{encoding}"?>{head}<a b="&l11;"><b>&l11;</b></a>'
    xml.write_bytes(text.encode(encoding))
    assert "DTD" in refused(xml).message


def test_a_hundred_megabytes_are_refused_unread(xml: Path, monkeypatch: pytest.MonkeyPatch):
    with xml.open("wb") as file:
        file.write(b"<a><b/>")
        file.truncate(100_000_000)
    monkeypatch.setattr("kesin.workloads.optiplan.pipeline.shared_folder._CHUNK_BYTES", None)  # reads would fail
    assert "100000000 bytes" in refused(xml).message


def test_a_file_that_grows_while_it_is_read_is_refused(xml: Path, monkeypatch: pytest.MonkeyPatch):
    with xml.open("wb") as file:
        file.truncate(500_000)
    before = os.stat_result((0o100644, 0, 0, 1, 0, 0, 10, 0, 0, 0))
    monkeypatch.setattr(os, "fstat", lambda _: before)
    with pytest.raises(UnusableFile, match="larger than 100000 bytes"):
        read_plain_file(xml, 100_000)


def test_a_file_of_just_the_limit_is_read_and_its_long_text_passed_over(xml: Path):
    begin, end = b"<a><b>", b"</b></a>"
    xml.write_bytes(begin + b"x" * (MAX_XML_BYTES - len(begin) - len(end)) + end)
    assert check_xml(xml)["size_bytes"] == MAX_XML_BYTES > 15_000_000


def test_links_and_folders_and_pipes_are_no_solutions(xml: Path, tmp_path: Path):
    (tmp_path / "secret").write_bytes(GOOD)
    xml.symlink_to(tmp_path / "secret")
    assert "link" in refused(xml).message
    xml.unlink()
    os.mkfifo(xml)
    assert "not a regular file" in refused(xml).message
    xml.unlink()
    xml.mkdir()
    assert "not a regular file" in refused(xml).message


def test_a_file_that_is_gone_can_be_made_again_and_a_share_that_is_away_waited_for(xml: Path):
    with pytest.raises(OrderProblem, match="is no longer in the folder") as caught:
        check_xml(xml)
    assert caught.value.code == OptiCode.OPTI_RUNNER_FAILED
    with pytest.raises(FolderUnavailable):
        check_xml(xml.parent / "not" / "mounted.xml")


def test_a_schema_is_followed_if_there_is_one_be_it_a_link_or_an_include(xml: Path, tmp_path: Path):
    xsd, linked, outer = (tmp_path / f"{name}.xsd" for name in ("solution", "linked", "outer"))
    xsd.write_text(XSD)
    linked.symlink_to(xsd)
    outer.write_text(
        '<schema xmlns="http://www.w3.org/2001/XMLSchema"><include schemaLocation="solution.xsd"/></schema>'
    )
    xml.write_bytes(b'<Solutions>\n<Solution patterns="2"/>\n</Solutions>')
    for schema in (xsd, linked, outer):
        assert check_xml(xml, schema)["solutions"] == 1
    xml.write_bytes(b'<Solutions>\n<Solution patterns="secret"/>\n</Solutions>')
    for schema in (xsd, linked, outer):
        problem = refused(xml, schema)
        assert problem.details["line"] == 2
        assert schema.name in problem.message
        assert "secret" not in problem.message


def test_a_schema_that_cannot_be_used_is_not_the_solutions_fault(xml: Path, tmp_path: Path):
    xml.write_bytes(GOOD)
    for name, content in (("none", None), ("half", "<a>"), ("other", "<a/>")):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(OrderProblem, match="XSD") as caught:
            check_xml(xml, tmp_path / name)
        assert caught.value.code == OptiCode.CONFIG_UNAVAILABLE
    with pytest.raises(OrderProblem, match="XSD"):
        check_xml(xml, tmp_path)
