"""Versions of templates: uploaded as zips, checked, and one of each template active.

Their bytes lie in the storage of the PDFs and never change. A row for each template in the store
of the queue lists them; every process reads these rows again after a second.
"""

import io
import json
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kesin.engine.queue import Queue
from kesin.foundation.clock import iso
from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid, NotFound, RequestConflict, Unavailable
from kesin.store.directory import MetadataEntry
from kesin.store.errors import StoreUnreachable
from kesin.store.metadata import metadata_for
from kesin.workloads.pdf.schemas import TemplateVersion, TemplateVersionList
from kesin.workloads.pdf.storage.base import KeyTaken, StorageBackend, StorageError
from kesin.workloads.pdf.templating.library import MAX_FILE_BYTES, MAX_FILES, MAX_PINNED, Files, TemplateLibrary, digest
from kesin.workloads.pdf.templating.sandbox import template_failure

ZIP_TYPE: Final = "application/zip"
FOLDER: Final = "templates"  # of the storage
_PREFIX: Final = "template:"  # of the names of rows
MAX_VERSIONS: Final = 50  # of a template
MAX_TEMPLATES: Final = 200  # that have versions
REFRESH_S: Final = 1.0
IN_FOLDER: Final = "folder"  # in place of a version: what the folders have
_NONE: Final = TemplateVersionList()


class TemplateChange(NamedTuple):
    """A template whose versions are changed, and by whom."""

    library: TemplateLibrary
    name: str
    by: str
    audit: Callable[..., None]  # writes ``details`` to the audit log


class TemplateVersions:
    """The stored versions; thread-safe. Changes raise Problem, RenderFailed and StorageDown."""

    def __init__(self, queue: Queue, storage: Callable[[], StorageBackend]) -> None:
        self.clock = queue.clock
        self._queue = queue
        self._metadata = metadata_for(queue.store)
        self._storage = storage
        self._known: tuple[dict[str, TemplateVersionList], float] | None = None  # and when
        self._read_recent = lru_cache(MAX_PINNED)(self._read)

    def lists(self) -> dict[str, TemplateVersionList]:
        """Return the versions of all templates as they are now, by name."""
        rows = self._metadata.metadata_entries(self._queue.name, site="")
        ours = (row for row in rows if row.name.startswith(_PREFIX))
        return {row.name.removeprefix(_PREFIX): _parse(row) for row in ours}

    def list(self, name: str) -> TemplateVersionList:
        """Return the versions of a template; raises NotFound if it has none."""
        if name not in (lists := self.lists()):
            raise NotFound("this template has no versions")
        return lists[name]

    def active(self) -> dict[str, str]:
        """Return the active versions by name; while the store is unreachable, as they were."""
        return {name: row.active for name, row in self._recent().items() if row.active}

    def read(self, name: str, version: str) -> Files:
        """Return the files of a version; raises RenderFailed, ``stored`` if there is such a one."""
        lists = map(self._recent, (REFRESH_S, 0.0))  # it may have been added a moment ago
        if not any(listed.get(name, _NONE).find(version) for listed in lists):
            raise template_failure(name, "there is no such version")
        return self._read_recent(name, version)

    def has_file(self, known: TemplateVersion) -> bool:
        return self._storage().exists(_key(known.name, known.version))

    def _recent(self, max_age_s: float = REFRESH_S) -> dict[str, TemplateVersionList]:
        now, known = self.clock.monotonic(), self._known
        if known is None or not 0 <= now - known[1] < max_age_s:
            try:
                known = (self.lists(), now)
            except StoreUnreachable:
                if known is None:
                    raise
            self._known = known
        return known[0]

    def _read(self, name: str, version: str) -> Files:
        try:
            files = read_package(self._storage().get_bytes(_key(name, version)))
            if version_of(name, files) == version:
                return files
            why: str = Message("its file is damaged")
        except (StorageError, Unavailable, Invalid) as failure:
            why = str(failure)
        problem = Message("the version cannot be read: %(problem)s", problem=why)
        refusal = template_failure(name, problem)
        refusal.details["stored"] = True
        raise refusal

    def add(self, change: TemplateChange, package: bytes) -> TemplateVersion:
        """Check an upload with its samples, and store it as a draft; repeating it is safe."""
        name, files = change.name, read_package(package)
        version, stored = version_of(name, files), write_package(files)
        _check(change, version, files)
        with self._changed(name, version) as (row, storage):
            try:
                storage.put_bytes(_key(name, version), stored, ZIP_TYPE)
            except KeyTaken:  # the file was damaged
                storage.delete(_key(name, version))
                storage.put_bytes(_key(name, version), stored, ZIP_TYPE)
            if known := row.find(version):
                return known
            if not row.versions and len(self.lists()) > MAX_TEMPLATES:
                why = "at most %(most)s templates can have versions"
                raise RequestConflict(why, most=MAX_TEMPLATES)
            if len(row.versions) >= MAX_VERSIONS:
                why = "a template can have at most %(most)s versions: delete one first"
                raise RequestConflict(why, most=MAX_VERSIONS)
            facts = {"version": version, "added_at": iso(self._queue.now()), "added_by": change.by}
            draft = TemplateVersion.model_validate({"name": name, "state": "draft", **facts})
            row.versions.insert(0, draft)
            change.audit(details={"version": version})
        return draft

    def activate(self, change: TemplateChange, version: str) -> TemplateVersionList:
        """Make a version, or the folders' template, the active one; repeating it is safe."""
        known = self.list(change.name)
        if version != IN_FOLDER:
            _require(known, version)
            _check(change, version, self._read(change.name, version))
        with self._changed(change.name, version) as (row, _):
            before = row.active or IN_FOLDER
            if before != version:
                if active := row.find(before):
                    active.state = "retired"
                if version != IN_FOLDER:
                    chosen = _require(row, version)
                    chosen.state, chosen.activated_by = "active", change.by
                    chosen.activated_at = iso(self._queue.now())
                change.audit(details={"version": version, "before": before})
        return row

    def delete(self, change: TemplateChange, version: str) -> None:
        """Delete a version that is not active."""
        with self._changed(change.name, version) as (row, storage):
            known = _require(row, version)
            if known.state == "active":
                raise RequestConflict("it is active: activate another version first")
            row.versions.remove(known)
            storage.delete(_key(change.name, version))
            change.audit(details={"version": version})

    @contextmanager
    def _changed(self, name: str, version: str) -> Iterator[tuple[TemplateVersionList, StorageBackend]]:
        """Lock the row of a template, and store it as it is at the end."""
        storage = self._storage()
        storage.exists(_key(name, version))  # if it is down, this fails before the lock is taken
        with self._metadata.transaction():
            key, now = (self._queue.name, "", _PREFIX + name), self._queue.now()
            row = _parse(self._metadata.lock_metadata(*key, now))
            yield row, storage
            if row.versions:
                self._metadata.put_metadata(MetadataEntry(*key, row.model_dump_json(), now))
            else:
                self._metadata.delete_metadata(*key)
        self._known = None


MAX_PACKAGE_BYTES: Final = 5 * 1024 * 1024
MAX_UNPACKED_BYTES: Final = 10 * 1024 * 1024
MAX_RATIO: Final = 200  # of the unpacked bytes to the packed ones
_ENCRYPTED: Final = 0x1
_METHODS: Final = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_HIDDEN: Final = re.compile(r"(^|/)\.[^./]|^__MACOSX/")
_STEP: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"
_FILE_NAME: Final = re.compile(rf"{_STEP}(?:/{_STEP}){{0,4}}", re.ASCII)


def version_of(name: str, files: Files) -> str:
    """Return the version of a template with these files: the same on every machine."""
    return digest(f"kesin template {name}", files)


def read_package(data: bytes) -> dict[str, bytes]:
    """Return the files of a zip without hidden ones, and without a folder around all of them."""
    if len(data) > MAX_PACKAGE_BYTES:
        raise _refusal("the zip is larger than %(most)s bytes", most=MAX_PACKAGE_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as package:
            files = dict(_read_entries(package))
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError):
        raise _refusal("the body is not a complete zip") from None
    tops = {file.partition("/")[0] for file in files}
    if len(tops) == 1 and "template.html" not in files:
        files = {file.partition("/")[2]: content for file, content in files.items()}
    return files


def write_package(files: Files) -> bytes:
    """Build the zip of these files, always with the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as package:
        for file in sorted(files):
            package.writestr(zipfile.ZipInfo(file), files[file])
    return packed.getvalue()


def _read_entries(package: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    listed = package.infolist()
    entries = [each for each in listed if not (each.is_dir() or _HIDDEN.search(each.filename))]
    if len(entries) > MAX_FILES:
        raise _refusal("the zip has more than %(most)s files", most=MAX_FILES)
    if sum(entry.file_size for entry in entries) > MAX_UNPACKED_BYTES:
        raise _refusal("the files together exceed %(most)s bytes", most=MAX_UNPACKED_BYTES)
    seen: set[str] = set()
    for entry in entries:
        name, most = entry.filename, min(MAX_FILE_BYTES, MAX_RATIO * max(entry.compress_size, 1))
        kind = stat.S_IFMT(entry.external_attr >> 16)
        for why, wrong in (
            ("its name is not a path of letters, digits and '._-'", not _FILE_NAME.fullmatch(name)),
            ("another entry has this name", name.lower() in seen),
            ("it is a link or a device", kind not in {0, stat.S_IFREG}),
            ("it is encrypted", entry.flag_bits & _ENCRYPTED),
            ("it is not compressed with deflate", entry.compress_type not in _METHODS),
            ("it is too large, or compressed too much", entry.file_size > most),
        ):
            if wrong:
                shown = name[:100] if name.isprintable() else "?"
                raise _refusal("%(file)s: %(problem)s", file=shown, problem=Message(why))
        seen.add(name.lower())
        yield name, package.read(entry)


def _refusal(sentence: str, **values: Any) -> Invalid:
    return Invalid(sentence, code="BAD_TEMPLATE_ZIP", **values)


def _check(change: TemplateChange, version: str, files: Files) -> None:
    """Compile a template and fill in its samples; raises RenderFailed."""
    loaded = change.library.with_version(change.name, version, files)
    if problem := loaded.find_unusable().get(change.name):
        raise problem


def _require(row: TemplateVersionList, version: str) -> TemplateVersion:
    known = row.find(version)
    if known is None:
        raise NotFound("this template has no such version")
    return known


def _parse(row: MetadataEntry) -> TemplateVersionList:
    return TemplateVersionList.model_validate(json.loads(row.value) or {})


def _key(name: str, version: str) -> str:
    return f"{FOLDER}/{name}/{version}.zip"
