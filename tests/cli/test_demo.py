def test_the_tour_ends_well_and_leaves_nothing_behind(programs, tmp_path):
    (tmp_path / "tmp").mkdir()
    answer = programs.run("demo", "--for", "1", TMPDIR=str(tmp_path / "tmp"))
    assert answer.code == 0, answer.out + answer.err
    for part in (
        "inserted 1850, duplicates 150",
        "was killed with SIGKILL",
        "the sweeper took back",
        "0 were lost, 0 delivered twice",
        "HOLD: E_CRM_NO_MATCH",
        "and the checker proved every plan",
        "the saw took 2 files from its inbox",
        "queued 500, duplicates 40, rejected at the door 6",
        "dies before it has uploaded any: took 200, acked 0",
        "16 minutes later the clock moved: recover 200",
        "the clock moved: revive 200",
        "of 500 sales: COMPLETED 488 · FAILED 12; 0 are anywhere else",
        "189 were uploaded twice under the same orderId",
        "both times it is the same job",
        "succeeded 4 · failed 1",
        "the lines do not add up to the stated total",
        "recover",
        "agree",
        "without a key: 401",
        "DONE 1 in optiplan",
    ):
        assert part in answer.out
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "data").exists()


def test_the_tour_is_lively_on_a_terminal_and_can_be_kept(programs, kesin, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    answer = programs.on_terminal("demo", "--for", "1", "--keep")
    assert answer.code == 0
    assert "/1850" in answer.out
    (folder,) = (tmp_path / "tmp").iterdir()
    monkeypatch.setenv("KESIN_DATA_DIR", str(folder))
    assert kesin("audit", "verify").code == 0
    (site,) = kesin("oci", "stats", "--json").json
    assert (site["totals"]["COMPLETED"], site["totals"]["FAILED"]) == (488, 12)
    pdfs = list((folder / "artifacts" / "pdfs").rglob("*.pdf"))
    assert [one.read_bytes()[:5] for one in pdfs] == [b"%PDF-"] * 4


def test_ctrl_c_ends_the_tour_cleanly(programs, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    answer = programs.on_terminal("demo", "--for", "60", after="/1850", type_in="\x03")
    assert answer.code == 130
    assert "Traceback" not in answer.out
    assert list((tmp_path / "tmp").iterdir()) == []
