"""A backup is signed with the key ring: what was changed after that is not restored."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.audit_verification import verify_audit_log
from kesin.engine.transfer.backup import (
    DATABASE,
    MANIFEST,
    SIGNATURE,
    SUMS,
    _checksum_line,
    back_up,
    digest_of,
    signed_text,
)
from kesin.engine.transfer.restore import check_signature, read_backup
from kesin.foundation.encryption import KeyRing, new_key, signing_key_id
from kesin.foundation.permissions import system_actor
from kesin.store.directory import Directory
from kesin.store.open import open_store
from kesin.store.transfer.dump import RestoreRefused
from kesin.store.transfer.dump_sqlite import SqliteDump

ROOT = system_actor("cli:root")
RING = KeyRing.from_setting(new_key("k1"))
ROTATED = new_key("k2")


def write(folder: Path, ready_file: Path, ring: KeyRing | None):
    database = Path(shutil.copyfile(ready_file, folder / "k.db"))
    with closing(open_store(database)) as store:
        Accounts(Directory(store)).add_site(ROOT, "north")
        head = Directory(store).audit_head()
    target = folder / "b"
    back_up(SqliteDump(database), target, [], [], lambda _total: lambda _more: None, ring=ring)
    return target, head


@pytest.fixture(scope="module")
def made(tmp_path_factory, ready_file):
    return write(tmp_path_factory.mktemp("signed"), ready_file, RING)


@pytest.fixture
def signed(made, tmp_path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "copy"))


def key_of(folder: Path, ring: KeyRing | None, *, allow_unsigned: bool = False) -> str | None:
    return check_signature(read_backup(folder), ring, allow_unsigned=allow_unsigned)


def rewrite_sums(folder: Path) -> None:
    """Make the checksums agree again, as somebody who changes a backup would."""
    files = [*(folder / DATABASE).iterdir(), folder / MANIFEST]
    sums = {file.relative_to(folder).as_posix(): digest_of(file) for file in files}
    (folder / SUMS).write_text("".join(_checksum_line(name, sums[name]) for name in sorted(sums)))


def test_a_signed_backup_holds_the_head_of_the_audit_log_and_is_accepted(made, signed):
    assert key_of(signed, RING) == "k1"
    assert read_backup(signed).audit_head == made[1]
    assert signing_key_id((signed / SIGNATURE).read_text().strip()) == "k1"


def change_database(folder: Path) -> None:
    with (folder / DATABASE / "kesin.db").open("ab") as file:
        file.write(b"more")


def change_head(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["audit_head"]["seq"] += 1
    (folder / MANIFEST).write_text(json.dumps(manifest))


def change_signature(folder: Path) -> None:
    version, key_id, mac = (folder / SIGNATURE).read_text().strip().split(".")
    (folder / SIGNATURE).write_text(f"{version}.{key_id}.{mac[:-2]}AA\n")


def put_nonsense(folder: Path) -> None:
    (folder / SIGNATURE).write_text("nonsense\n")


def put_another(folder: Path) -> None:
    (folder / SIGNATURE).write_text(KeyRing.from_setting(new_key("k1")).sign(text_of(folder)) + "\n")


def text_of(folder: Path) -> str:
    return signed_text(folder, read_backup(folder).manifest)


def test_a_changed_backup_is_always_refused(made, tmp_path):
    """The last one is signed with another key of the same name."""
    for change in (change_database, change_head, change_signature, put_nonsense, put_another):
        folder = Path(shutil.copytree(made[0], tmp_path / change.__name__))
        change(folder)
        rewrite_sums(folder)
        for allow_unsigned in (False, True):
            with pytest.raises(RestoreRefused, match="the backup was changed"):
                key_of(folder, RING, allow_unsigned=allow_unsigned)


def test_a_signature_of_another_backup_is_refused(signed, tmp_path, ready_file):
    other, _ = write(tmp_path, ready_file, RING)
    shutil.copyfile(other / SIGNATURE, signed / SIGNATURE)
    with pytest.raises(RestoreRefused, match="the backup was changed"):
        key_of(signed, RING)


def test_a_backup_of_a_key_that_is_not_here_needs_to_be_allowed(signed):
    for ring in (None, KeyRing.from_setting(ROTATED)):
        with pytest.raises(RestoreRefused, match="'k1', which is not in KESIN_SECRET_KEYS"):
            key_of(signed, ring)
        assert key_of(signed, ring, allow_unsigned=True) is None


def test_a_key_that_signs_no_more_still_checks(signed):
    old = new_key("k0")
    (signed / SIGNATURE).write_text(KeyRing.from_setting(old).sign(text_of(signed)))
    assert key_of(signed, KeyRing.from_setting(f"{ROTATED},{old}")) == "k0"


def test_an_unsigned_backup_needs_to_be_allowed(tmp_path, ready_file, signed):
    unsigned, _ = write(tmp_path, ready_file, None)
    assert not (unsigned / SIGNATURE).exists()
    (signed / SIGNATURE).unlink()  # the signature was taken away
    for folder in (unsigned, signed):
        for ring in (None, RING):
            with pytest.raises(RestoreRefused, match=r"is not signed, .* --allow-unsigned"):
                key_of(folder, ring)
            assert key_of(folder, ring, allow_unsigned=True) is None


def test_the_log_of_a_backup_goes_on_from_its_head(signed):
    known = read_backup(signed).audit_head
    with closing(open_store(signed / DATABASE / "kesin.db")) as store:
        assert verify_audit_log(Directory(store), known).problems == []


def test_a_ring_that_signs_shows_no_key():
    entry = new_key("k1")
    ring = KeyRing.from_setting(entry)
    assert entry.split(":")[1] not in repr(vars(ring)) + repr(ring)
