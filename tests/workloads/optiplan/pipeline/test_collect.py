"""An order's XMLs: all of them, finished, and none of another order."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.workloads.optiplan.pipeline.shared_folder import FolderUnavailable
from kesin.workloads.optiplan.pipeline.solution import FoundXml, find_xml, set_aside

JOB = "0192f0c1-2d3e-7abc-8def-0123456789ab"
OTHER = "0192f0c1-2d3e-7abc-8def-0123456789ac"
BODY, BACK = f"{JOB}_GOVDE_Mese_18mm", f"{JOB}_ARKALIK_Mese_8mm"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    folder = tmp_path / "Sol"
    folder.mkdir()
    return folder


def write(folder: Path, name: str, text: str = "<a/>", changed_s: int = 1000) -> Path:
    path = folder / name
    path.write_text(text)
    os.utime(path, (changed_s, changed_s))
    return path


def look(folder: Path, *stems: str, times: int = 2) -> FoundXml:
    result = FoundXml({}, complete=False, file_states={})
    for _ in range(times):
        remembered = json.loads(json.dumps(result.file_states))
        result = find_xml(folder, JOB, stems or (BODY,), remembered)
    return result


def test_a_file_counts_at_the_second_look(export: Path):
    path = write(export, f"{BODY}.xml")
    assert look(export, times=1) == FoundXml({}, False, {path.name: [4, 1000 * 10**9]})
    assert look(export, times=2) == FoundXml({BODY: path}, True, {path.name: [4, 1000 * 10**9]})


def test_a_file_that_is_empty_grows_or_is_touched_between_looks_is_waited_for(export: Path):
    path = write(export, f"{BODY}.xml", "")
    assert not look(export).complete  # it was only begun
    write(export, path.name, "<a>")
    first = find_xml(export, JOB, [BODY], {})
    write(export, path.name, "<a></a>")
    grown = find_xml(export, JOB, [BODY], first.file_states)
    write(export, path.name, "<a></b>", changed_s=1001)
    touched = find_xml(export, JOB, [BODY], grown.file_states)
    assert [first.complete, grown.complete, touched.complete] == [False] * 3
    assert find_xml(export, JOB, [BODY], touched.file_states).complete


def test_every_batch_is_waited_for_and_one_file_may_stand_for_all_that_have_none_of_their_own(export: Path):
    body = write(export, f"{BODY}.xml")
    result = look(export, BODY, BACK)
    assert (dict(result.files), result.complete) == ({BODY: body}, False)
    back = write(export, f"{BACK}.xml")
    result = look(export, BODY, BACK)
    assert (dict(result.files), result.complete) == ({BODY: body, BACK: back}, True)
    assert result.paths == (body, back)
    path = write(export, f"Plan {JOB}.XML")
    back.unlink()
    assert not look(export, BODY, BACK).complete
    body.unlink()
    result = look(export, BODY, BACK)
    assert (dict(result.files), result.complete) == ({BODY: path, BACK: path}, True)
    assert result.paths == (path,)


def test_names_are_compared_without_case_and_the_longer_stem_wins(export: Path):
    path = write(export, f"{BODY.upper()}_P001.XML")
    assert look(export).files == {BODY: path}
    longer = f"{BODY}2"
    other = write(export, f"{longer}_x.xml")
    for stems in ((BODY, longer), (longer, BODY)):
        assert look(export, *stems).files == {BODY: path, longer: other}


def test_of_two_the_newest_is_taken_and_waited_for_while_it_grows(export: Path):
    write(export, f"{BODY}_1.xml", changed_s=1000)
    result = look(export)
    newest = write(export, f"{BODY}_0.xml", changed_s=2000)
    assert find_xml(export, JOB, [BODY], result.file_states).files == {}
    assert look(export).files == {BODY: newest}
    twin = write(export, f"{BODY}_2.xml", changed_s=2000)
    assert look(export).files == {BODY: twin}  # the name decides where time does not


def test_no_other_file_is_taken(export: Path):
    names = {
        f"{OTHER}.xml",
        f"{OTHER}_GOVDE_Mese_18mm.xml",
        f"{OTHER}_GOVDE_{JOB}_18mm.xml",
        f"{JOB}+{OTHER}.xml",
        f"{JOB}.xml.tmp",
        f".{JOB}.xml",
        f"{JOB[:-1]}.xml",
        f"{JOB}.xlsx",
        "plan.xml",
    }
    for name in names:
        write(export, name)
    result = look(export)
    assert (dict(result.files), result.file_states) == ({}, {})
    assert set_aside(export, JOB, [BODY], "old") == []
    assert {path.name for path in export.iterdir()} == names


def test_links_folders_and_names_that_are_no_text_are_not_looked_at(export: Path, tmp_path: Path):
    outside = write(tmp_path, "secret.xml")
    (export / f"{BODY}_1.xml").symlink_to(outside)
    (export / f"{BODY}_2.xml").mkdir()
    (export / os.fsdecode(f"{BODY}_".encode() + b"\xff.xml")).touch()
    os.mkfifo(export / f"{BODY}_3.xml")
    assert look(export) == FoundXml({}, False, {})
    assert set_aside(export, JOB, [BODY], "failed") == []


def test_a_folder_that_cannot_be_read_is_not_empty(export: Path):
    for folder in (export / "gone", write(export, "file")):
        with pytest.raises(FolderUnavailable, match="cannot be used"):
            find_xml(folder, JOB, [BODY], {})
        with pytest.raises(FolderUnavailable):
            set_aside(folder, JOB, [BODY], "old")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Drop root, for which permissions do not count."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_without_the_right_to_read_is_not_empty():
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o111)
        with as_nobody(), pytest.raises(FolderUnavailable, match="Permission denied"):
            find_xml(folder, JOB, [BODY], {})
        folder.chmod(0o755)
        write(folder, f"{BODY}.xml")
        folder.chmod(0o555)
        with as_nobody(), pytest.raises(FolderUnavailable, match="Permission denied"):
            set_aside(folder, JOB, [BODY], "old")
        folder.chmod(0o755)


def test_old_solutions_are_set_aside_and_none_is_lost(export: Path):
    reasons: list[Literal["old", "failed"]] = ["old", "old", "failed"]
    for why, text in zip(reasons, "123", strict=True):
        write(export, f"{BODY}.xml", text)
        write(export, f"{JOB}.xml", text)
        keep = write(export, f"{OTHER}.xml")
        assert len(set_aside(export, JOB, [BODY], why)) == 2
        assert [path for path in export.iterdir() if path.is_file()] == [keep]
        assert set_aside(export, JOB, [BODY], why) == []
    contents = {path.parent.name + path.read_text() for path in export.glob("*/*.xml")}
    assert contents == {"old1", "old2", "failed3"}
    assert len(list(export.glob("*/*.xml"))) == 6
    assert look(export).files == {}


def test_a_file_that_goes_while_it_is_set_aside_is_not_missed(export: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(export, f"{BODY}.xml")
    replace = Path.replace

    def too_late(self: Path, target: Path) -> Path:
        path.unlink()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", too_late)
    assert set_aside(export, JOB, [BODY], "old") == []


def test_nonsense_is_refused(export: Path):
    for job_id, stems in (("job-1", ["job-1_x"]), (JOB, []), (JOB, [OTHER + "_x"]), (JOB, [BODY, BODY.upper()])):
        with pytest.raises(ValueError, match=r"expected|begins"):
            find_xml(export, job_id, stems, {})


WORDS = st.sampled_from(["", "p1", "_", "-", "plan ", ".", "GOVDE_", "0", "ab", "18mm"])
COLORS = st.sampled_from(["Mese", JOB, OTHER, f"x-{JOB}", "Mese_18mm", ""])
NAMES = st.builds("{}_GOVDE_{}_18mm{}.xml".format, st.just("{}"), COLORS, WORDS) | st.builds(
    "{}{}{}.xml".format, WORDS, st.just("{}"), WORDS
)


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(st.tuples(st.sampled_from([JOB, OTHER]), NAMES), max_size=6), st.booleans())
def test_whatever_lies_there_only_our_own_is_ever_taken(made: list[tuple[str, str]], upper: bool):
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        owners: dict[str, str] = {}
        for owner, name in made:
            full = name.format(owner)
            full = full.upper() if upper else full
            owners[full] = owner
            write(folder, full)
        result = look(folder, BODY, f"{JOB}_GOVDE_{OTHER}_18mm")
        assert all(owners[path.name] == JOB for path in result.paths)
        assert result.complete == (len(result.files) == 2)
        aside = set_aside(folder, JOB, [BODY], "old")
        left = {path.name for path in folder.iterdir() if path.is_file()}
        assert left >= {name for name, owner in owners.items() if owner == OTHER}
        assert len(left) + len(aside) == len(owners)
