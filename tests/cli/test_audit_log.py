"""The chain of the audit log, verified by `kesin audit verify` and `kesin restore`."""

import sqlite3
from contextlib import closing

import pytest

from kesin.cli.commands import audit
from kesin.foundation.clock import wall_clock_us
from kesin.foundation.encryption import new_key
from kesin.store.audit_log import CHAIN_ACTOR, PRUNE_ACTION, AuditAnchor, AuditHead, AuditLine, line_hash


@pytest.fixture
def sites(kesin, monkeypatch):
    """Five lines in the audit log, and a key ring."""
    monkeypatch.setenv("KESIN_SECRET_KEYS", new_key("k1"))
    for n in range(5):
        assert kesin("site", "add", f"site-{n}").code == 0


@pytest.fixture
def execute(tmp_path):
    def run(sql):
        with closing(sqlite3.connect(tmp_path / "data" / "kesin.db")) as database, database:
            return database.execute(sql).fetchall()

    return run


def test_a_whole_log_is_verified_and_a_deleted_line_is_named_also_after_a_restore(
    kesin, sites, execute, tmp_path, monkeypatch
):
    answer = kesin("audit", "verify")
    assert (answer.code, answer.lines[-1]) == (0, "audit log complete: 5 lines in the chain")
    execute("DELETE FROM audit WHERE seq IN (2, 3)")
    answer = kesin("audit", "verify")
    assert (answer.code, answer.lines[-1]) == (1, "audit log BROKEN: 3 lines in the chain")
    assert "2 lines are missing before the line 4" in answer.err
    assert "audit log: 2 lines are missing; the first broken line is 4" in answer.err
    answer = kesin("audit", "verify", "--json")
    assert answer.code == 1
    report = answer.json[-1]["audit_log"]
    assert (report["missing"], report["first_broken"], report["lines"]) == (2, 4, 3)
    assert kesin("backup", "b").code == 0
    monkeypatch.setenv("KESIN_DATA_DIR", str(tmp_path / "elsewhere"))
    answer = kesin("restore", "b")
    assert (answer.code, "audit log: 2 lines are missing before the line 4" in answer.err) == (1, True)
    assert "audit log: 2 lines are missing; the first broken line is 4" in answer.err


def test_a_log_that_was_cut_back_is_noticed_by_the_backup(kesin, sites, execute):
    assert kesin("backup", "b", "--json").json["signed_with"] == "k1"
    assert kesin("audit", "verify", "--backup", "b").code == 0
    [(hash_of_3,)] = execute("SELECT hash FROM audit WHERE seq = 3")
    for name in ("audit_head_kept", "audit_head_stays"):
        execute(f"DROP TRIGGER {name}")
    execute(f"UPDATE audit_head SET seq = 3, hash = '{hash_of_3}'")
    execute("DELETE FROM audit WHERE seq > 3")
    assert kesin("audit", "verify").code == 0
    answer = kesin("audit", "verify", "--backup", "b")
    assert answer.code == 1
    assert "the log ends at line number 3, but the backup at 5" in answer.err
    assert kesin("audit", "verify", "task", "--backup", "b").code == 2


def forge_pruning(execute, seq: int) -> None:
    """Delete all lines, and write one that says that they were pruned."""
    [(hash_of_last,)] = execute(f"SELECT hash FROM audit WHERE seq = {seq}")
    execute("DELETE FROM audit")
    anchor = AuditAnchor(AuditHead(seq, hash_of_last)).as_details()
    line = AuditLine(99, wall_clock_us(), CHAIN_ACTOR, PRUNE_ACTION, allowed=True, details=anchor)
    forged = line_hash(hash_of_last, seq + 1, line)
    execute(
        "INSERT INTO audit (id, at, actor, action, allowed, details, seq, hash) VALUES"
        f" ({line.id}, {line.at}, '{line.actor}', '{line.action}', 1, '{anchor}', {seq + 1},"
        f" '{forged}')"
    )
    execute(f"UPDATE audit_head SET seq = {seq + 1}, hash = '{forged}'")


def test_lines_that_were_pruned_too_early_are_noticed_by_the_backup(kesin, sites, execute, monkeypatch):
    kesin("backup", "b")
    forge_pruning(execute, 5)
    assert kesin("audit", "verify").code == 0
    answer = kesin("audit", "verify", "--backup", "b")
    assert answer.code == 1
    assert "line number 5, at which the backup ended, was pruned although" in answer.err
    in_two_years = wall_clock_us() + 730 * 86_400 * 1_000_000
    monkeypatch.setattr(audit, "wall_clock_us", lambda: in_two_years)
    assert kesin("audit", "verify", "--backup", "b").code == 0


def test_a_backup_without_a_key_ring_says_so_and_is_restored_only_if_told(kesin, fill, monkeypatch, tmp_path):
    fill("task", 1)
    answer = kesin("backup", "b")
    assert "the backup is not signed, so a later change would not be noticed" in answer.err
    monkeypatch.setenv("KESIN_DATA_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.delenv("KESIN_DATABASE_URL", raising=False)
    refused = kesin("restore", "b")
    assert refused.code == 1
    assert "the backup is not signed" in refused.err
    assert not (tmp_path / "elsewhere" / "kesin.db").exists()
    assert "it is not signed" in kesin("restore", "b", "--check").lines[-1]
    restored = kesin("restore", "b", "--allow-unsigned", "--json")
    assert restored.code == 0, restored.err
    assert (restored.json["signed_with"], restored.json["audit_log"]["problems"]) == (None, [])


def test_a_changed_backup_is_not_restored(kesin, sites, tmp_path, monkeypatch):
    assert kesin("backup", "b").code == 0
    assert kesin("restore", "b", "--check").lines[-1] == ("it was signed with the key k1 and has not changed since")
    signature = tmp_path / "b" / "SIGNATURE"
    signature.write_text("v1.k1." + "A" * 43)
    monkeypatch.setenv("KESIN_DATA_DIR", str(tmp_path / "elsewhere"))
    for words in ((), ("--allow-unsigned",), ("--check",)):
        answer = kesin("restore", "b", *words)
        assert (answer.code, "the backup was changed" in answer.err) == (1, True)
    assert not (tmp_path / "elsewhere" / "kesin.db").exists()
