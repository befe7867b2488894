"""`kesin pdf doctor`: checks that PDFs can be rendered, stored and fetched; says what to fix."""

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from kesin.engine.queue import Queue
from kesin.foundation.check import DoctorCheck
from kesin.foundation.problems import Problem
from kesin.foundation.settings import Settings
from kesin.store.errors import StoreError
from kesin.store.postgres.reachability import check_reachable
from kesin.web.health import find_disk_problems
from kesin.workloads import built_in
from kesin.workloads.common.stores import open_as_stored, open_workload_stores
from kesin.workloads.pdf import PDF, services
from kesin.workloads.pdf.engines.base import Engine, Paper, find_chromium, is_chromium_available
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.heartbeat import find_stuck_workers, workers_alive
from kesin.workloads.pdf.jobs.store import WORKLOAD
from kesin.workloads.pdf.lifecycle import configured_lifecycle
from kesin.workloads.pdf.storage import open_storage
from kesin.workloads.pdf.storage.base import StorageError
from kesin.workloads.pdf.templating.library import TemplateLibrary

TEST_LETTERS: Final = "ğ Ğ ı I i İ ş Ş ç Ç ö Ö ü Ü ₺"
_PAGE: Final = (
    "<!doctype html><html lang='tr'><head><title>Kesin</title><style>{css} "
    "body {{ font-family: {family}, monospace }}</style></head>"
    "<body><p>{letters}</p><p><b>{letters}</b></p></body></html>"
)


def run_checks(settings: Settings, engine: str | None = None) -> Iterator[DoctorCheck]:
    """Run all checks, in the order in which an operator would fix them."""
    library: TemplateLibrary | None = None
    try:
        library = services.load_pdf_templates(settings)
        unusable = library.find_unusable()
        usable = [name for name in library.names if name not in unusable]
        yield DoctorCheck.result("templates", ok=bool(usable), found=", ".join(usable) or "none")
        for broken in unusable.values():
            yield DoctorCheck.result("broken template", ok=False, found=broken.message)
    except (RenderFailed, Problem) as problem:
        yield DoctorCheck.result("templates", ok=False, found=str(problem))
    yield from _check_browser(settings, engine)
    yield from _check_printing(settings, engine, library)
    yield _check_storage(settings)
    try:
        with open_pdf_queue(settings) as queue:
            if queue is not None:
                yield from _check_versions(settings, queue)
                yield from _check_workers(queue)
    except StoreError as problem:
        yield DoctorCheck.result("workers", ok=False, found=str(problem))


def _check_browser(settings: Settings, engine: str | None) -> Iterator[DoctorCheck]:
    executable = find_chromium(settings.pdf_chromium)
    usable = is_chromium_available(settings.pdf_chromium)
    detail = str(executable) if executable and usable else "none, so WeasyPrint is used"
    yield DoctorCheck.result("browser", ok=usable or engine != "chromium", found=detail)
    if not usable:
        return
    refused = settings.pdf_sandbox == "on" and os.getuid() == 0
    off = "off: a page that escapes the browser has the permissions of this process; run as another user"
    detail = "on" if services.chromium_settings(settings).sandboxed else off
    if refused:
        detail = "on, which Chromium refuses as root: run as another user, or set it to auto"
    yield DoctorCheck.result("sandbox", ok=not refused, found=detail)


def _check_printing(settings: Settings, engine: str | None, library: TemplateLibrary | None) -> Iterator[DoctorCheck]:
    limit_s = settings.pdf_hard_timeout_s
    try:
        with closing(services.create_pdf_engine(settings, engine)) as renderer:
            page = _PAGE.format(css="", family="sans-serif", letters=TEST_LETTERS)
            rendered = renderer.render(page, Paper(), timeout_s=limit_s)
            fonts = None if library is None else _check_fonts(renderer, library, limit_s)
    except RenderFailed as problem:
        yield DoctorCheck.result("test page", ok=False, found=str(problem))
        return
    summary = f"{len(rendered.pdf)} bytes by {rendered.engine} in {rendered.seconds:.1f} s"
    detail = "; ".join((summary, *rendered.warnings))
    yield DoctorCheck.result("test page", ok=not rendered.warnings, found=detail)
    if fonts is not None:
        yield fonts


def _check_fonts(engine: Engine, library: TemplateLibrary, limit_s: float) -> DoctorCheck:
    """Check that our fonts have every test letter and that no other font was used to print them."""
    from fontTools.ttLib import TTFont  # type: ignore[import-untyped]

    ours: set[str] = set()
    whole = {file: data for file, data in library.fonts.items() if ".part." not in file}
    for file, data in whole.items():
        try:
            with TTFont(io.BytesIO(data)) as font:
                glyphs, name = font.getBestCmap() or {}, font["name"].getDebugName(6) or ""
        except Exception as problem:  # noqa: BLE001  # a font file may be broken in any way
            return DoctorCheck.result("fonts", ok=False, found=f"{file} cannot be read: {problem}")
        if missing := [letter for letter in TEST_LETTERS.split() if ord(letter) not in glyphs]:
            return DoctorCheck.result("fonts", ok=False, found=f"{file} lacks {' '.join(missing)}")
        ours.add(name)
    families = sorted({f"Kesin {Path(file).stem.split('-')[0].title()}" for file in whole})
    for family in families:
        page = _PAGE.format(css=library.font_css, family=f"'{family}'", letters=TEST_LETTERS)
        rendered = engine.render(page, Paper(), timeout_s=limit_s)
        used = embedded_fonts(rendered.pdf)
        prefix = family.replace(" ", "-")  # WeasyPrint's name for the family
        foreign = sorted(font for font in used if font not in ours and not font.startswith(prefix))
        if foreign or rendered.warnings:
            reasons = (*(f"{font} was used instead" for font in foreign), *rendered.warnings)
            return DoctorCheck.result("fonts", ok=False, found=f"{family}: {'; '.join(reasons)}")
    found = f"{TEST_LETTERS} in {', '.join(families)}"
    return DoctorCheck.result("fonts", ok=bool(families), found=found)


def embedded_fonts(pdf: bytes) -> set[str]:
    import pikepdf

    with pikepdf.open(io.BytesIO(pdf)) as document:
        return {
            str(item["/FontName"]).removeprefix("/").rpartition("+")[2]
            for item in document.objects
            if isinstance(item, pikepdf.Dictionary) and item.get("/Type") == "/FontDescriptor"
        }


def _check_storage(settings: Settings) -> DoctorCheck:
    address = services.artifacts_address(settings)
    for location, problem in find_disk_problems(settings, [PDF]):
        return DoctorCheck.result("storage", ok=False, found=f"{location} {problem}")
    if not settings.pdf_artifacts and not Path(address).exists():
        return DoctorCheck.result("storage", ok=True, found=f"{address} will be created with the first PDF")
    key = f"pdfs/doctor-{secrets.token_hex(8)}/0.pdf"
    try:
        storage = open_storage(address)
        storage.put_bytes(key, b"%PDF-", "application/pdf")
        same = storage.get_bytes(key) == b"%PDF-"
        storage.delete(key)
    except StorageError as problem:
        found = f"{problem}: check KESIN_PDF_ARTIFACTS"
        return DoctorCheck.result("storage", ok=False, found=found)
    return DoctorCheck.result("storage", ok=same, found=address)


@contextmanager
def open_pdf_queue(settings: Settings) -> Iterator[Queue | None]:
    """Open the queue of PDFs if there is a database that has it; nothing is declared in it."""
    file = settings.database_file
    if file is not None and not file.exists():
        yield None
        return
    check_reachable(settings)
    with closing(open_workload_stores(settings, built_in())) as store:
        yield open_as_stored(store, WORKLOAD, configured_lifecycle())


def _check_versions(settings: Settings, queue: Queue) -> Iterator[DoctorCheck]:
    """List the uploaded versions of each template; one whose file is lost is a failure."""
    versions = services.open_templates(settings, queue).versions
    with suppress(StorageError, Problem):  # it has a check of its own
        for name, row in sorted(versions.lists().items()):
            lost = [each.version[:12] for each in row.versions if not versions.has_file(each)]
            hint = f"; the file is lost: {', '.join(lost)}; upload it again" if lost else ""
            yield DoctorCheck.result(f"template {name}", ok=not lost, found=row.summary + hint)


def _check_workers(queue: Queue) -> Iterator[DoctorCheck]:
    """Count live workers; none is a failure only while jobs wait."""
    stats, stuck = queue.stats(), find_stuck_workers(queue)
    alive, waiting = len(workers_alive(queue.store, stats.now)), stats.states["queued"]
    for worker in stuck:
        detail = f"{worker} is making no progress or has stopped reporting: end it and start another"
        yield DoctorCheck.result("stuck worker", ok=False, found=detail)
    hint = "" if alive else "; start `kesin serve` or `kesin worker pdf`"
    detail = f"{alive} alive, {waiting} jobs waiting{hint}"
    yield DoctorCheck.result("workers", ok=bool(alive) or not (waiting or stuck), found=detail)
