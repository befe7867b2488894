"""The pages about PDFs over HTTP, followed by hand: curl against a service that renders."""

import re

import pytest
from fastapi import FastAPI

from kesin.foundation.settings import Settings
from kesin.store.open import open_store
from kesin.web.app import create_app
from kesin.web.service import Service
from kesin.workloads import workloads
from kesin.workloads.pdf.errors import PdfErrorCode
from kesin.workloads.pdf.jobs.heartbeat import check_worker_health
from kesin.workloads.pdf.schemas import PdfJobRequest, PdfRenderOptions
from kesin.workloads.pdf.webhooks.delivery import derive_secret, signature_headers
from tests.cli.mother import path_with_kesin
from tests.cli.programs import Programs, wait_until
from tests.docs.pages import DOCS, blocks
from tests.docs.walking import steps, walk
from tests.web.serving import opened, own_settings, serve

PAGE = DOCS / "pdf-api.md"
WALKED = (PAGE, DOCS / "tr" / "pdf.md")
TEXT = PAGE.read_text("utf-8")
BODY = b'{"type":"pdf.job.succeeded"}'
SECRET = derive_secret("the master secret of a service", "key:shop")


def test_who_types_what_the_pages_say_sees_what_they_show(tmp_path, monkeypatch):
    own_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("KESIN_PDF_PROCESSES", "1")
    monkeypatch.setenv("PATH", path_with_kesin(tmp_path / "bin"))
    with Programs(tmp_path) as started, serve(started, tmp_path) as served:
        with opened(tmp_path) as store:
            wait_until(lambda: check_worker_health(store))
        walk([step for page in WALKED for step in steps(page)], tmp_path, served.address)
    assert (tmp_path / "invoice.pdf").read_bytes().startswith(b"%PDF-")
    assert (tmp_path / "fatura.pdf").read_bytes().startswith(b"%PDF-")


@pytest.fixture(scope="module")
def app(tmp_path_factory) -> FastAPI:
    folder = tmp_path_factory.mktemp("app")
    store = open_store(folder / "kesin.db")
    yield create_app(Service(Settings(data_dir=folder), store, workloads(), work=False))
    store.close()


def test_every_path_of_the_page_is_one_of_the_service_and_none_is_left_out(app):
    def spelled(path: str) -> str:
        return re.sub(r"\{\w+\}", "{}", path)

    there = {spelled(path) for path in app.openapi()["paths"] if path.startswith("/pdf")}
    named = {spelled(path) for path in re.findall(r"/pdf/[a-z]+(?:/(?:[a-z]+|\{\w+\}))*", TEXT)}
    assert named - {"/pdf/jobs/{}/download"} <= there
    assert there - {"/pdf/batches/{}/download"} <= named


def test_every_code_field_and_option_is_told():
    assert {f"`{one}`" for one in PdfErrorCode} <= set(re.findall(r"`[A-Z_]+`", TEXT))
    fields = {*PdfJobRequest.model_fields, *PdfRenderOptions.model_fields} - {"options"}
    assert {one for one in fields if not re.search(rf"\b{one}`", TEXT)} == set()


def checker():
    (block,) = [one for one in blocks(PAGE) if one.language == "python"]
    names: dict[str, object] = {}
    exec(block.text, names)
    return names["is_ours"]


def test_the_receiver_of_the_page_knows_our_messages():
    headers = signature_headers(SECRET, "msg-1", 1_000, BODY)
    assert checker()(SECRET, headers, BODY, now=1_100)


@pytest.mark.parametrize(
    ("secret", "body", "now"),
    [
        (SECRET, BODY + b" ", 1_000),
        (SECRET, BODY, 1_301),
        (derive_secret("another master secret", "key:shop"), BODY, 1_000),
    ],
)
def test_the_receiver_of_the_page_refuses_what_is_not_ours_or_too_old(secret, body, now):
    headers = signature_headers(SECRET, "msg-1", 1_000, BODY)
    assert not checker()(secret, headers, body, now=now)
