"""Changed templates are noticed by routes and workers; fetched pictures are measured."""

import base64
import shutil
from pathlib import Path

import pytest

from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import Settings
from kesin.workloads.pdf import services
from kesin.workloads.pdf.doctor import run_checks
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from kesin.workloads.pdf.jobs.store import pdf_title
from kesin.workloads.pdf.safe_fetch import FetchedResource, FetchRefused
from kesin.workloads.pdf.services import chromium_settings, create_renderer, open_templates
from tests.attacks.bombs import png
from tests.workloads.pdf.batching import TEMPLATE, BatchWorld, opened_batches
from tests.workloads.pdf.press import folder_templates


def test_a_changed_template_is_used_without_a_restart_if_it_can_be_used(request, tmp_path):
    with opened_batches("sqlite", tmp_path, request) as world:
        world.person("ayse", "admin", all_sites=True)
        worker, source = (create_renderer(world.settings, world.pdf), open_templates(world.settings, world.pdf))
        first, before = source.library(), shown_hash(world)
        assert worker.library.get("card").content_hash == before
        assert "The last change" not in shown_page(world)

        _template(world).write_text("{% if %}")
        assert source.library().get("card").content_hash == before
        assert shown_hash(world) == worker.library.get("card").content_hash == before
        check = next(one for one in run_checks(world.settings) if "card/template" in one.found)
        assert not check.ok
        problem = shown_line(world)["problem"]
        assert problem.startswith("template card/template.html, line 1: syntax error: ")
        assert problem.endswith("; the version before this change is used")
        assert "The last change to a template contains an error." in shown_page(world)

        _template(world).write_text(TEMPLATE + "<!-- mended -->")
        assert source.library() is not first
        after = shown_hash(world)
        assert after != before
        assert shown_line(world)["problem"] is None
        assert worker.library.get("card").content_hash == after


def test_a_job_is_called_by_the_first_texts_and_numbers_of_its_schema(bindery):
    Heartbeat(bindery.store, "one", now=bindery.pdf.now).beat()
    variables = {"exact": "e", "kind": "a", "name": "Ada", "paid": True, "price": 2.5}
    body = {"template_name": "card", "variables": variables}
    made = bindery.client.post("/pdf/jobs", json=body, headers=bindery.headers).json()
    [job] = bindery.pdf.find([made["job_id"]]).values()
    assert pdf_title(job.payload) == "card · Ada · 2.5"  # stored by the alphabet
    assert pdf_title({**job.payload, "manner": {"fields": 7}}) == "card · Ada · e"


def test_a_broken_template_holds_no_change_of_another_back(bindery, tmp_path):
    folder = shutil.copytree(_template(bindery).parent.parent, tmp_path / "own")
    shutil.copytree(folder / "card", folder / "note")
    source = folder_templates(bindery.settings.model_copy(update={"pdf_templates": folder}))
    before = source.library().get("card").content_hash
    (folder / "card" / "template.html").write_text("{% if %}")
    (folder / "note" / "template.html").write_text(TEMPLATE.replace("<p>", "<p>Dear "))
    for name in ("Ada", "Bob"):
        library = source.library()
        assert f"<p>Dear {name}" in library.render_html("note", {"name": name})
        assert f"<p>{name}" in library.render_html("card", {"name": name})
        assert library.get("card").content_hash == before
        assert source.library().rejected.keys() == {"card"}
        (folder / "note" / "texts.json").write_text("{}")  # the next change
    shutil.rmtree(folder / "card")
    assert source.library().names == ("note",)
    assert not source.library().rejected


def test_templates_that_never_could_be_used_are_an_error(tmp_path):
    with pytest.raises(Unavailable, match="there is no folder"):
        folder_templates(Settings(pdf_templates=tmp_path / "none")).library()


def test_the_pictures_that_a_document_fetches_are_measured_together(monkeypatch):
    monkeypatch.setattr(services, "fetch", answer_with_picture)
    settings = Settings(pdf_allowed_urls=r"https://shop\.example/.*")
    fetch = chromium_settings(settings).new_fetch()
    with pytest.raises(FetchRefused, match="more than the allowed 25 million pixels"):
        fetch("9000")
    with pytest.raises(FetchRefused, match="more than the allowed 25 million pixels"):
        fetch("svg 9000")
    for name in ("5000", "4999", "5000"):
        assert fetch(name).body
    with pytest.raises(FetchRefused, match="the pictures in the document have more than"):
        fetch("4998")
    assert fetch("100").body  # what was refused is not shown, and does not count
    assert chromium_settings(settings).new_fetch()("4998").body


def answer_with_picture(url: str) -> FetchedResource:
    """Answer as a server does, with a picture as wide as the name says."""
    uri = png(int(url.rsplit(maxsplit=1)[-1]), pixels=False)
    if url.startswith("svg"):
        return FetchedResource("image/svg+xml", f'<svg><image href="{uri}"/></svg>'.encode())
    return FetchedResource("image/png", base64.b64decode(uri.partition(",")[2]))


def shown_line(world: BatchWorld) -> dict[str, str]:
    lines = world.client.get("/pdf/templates", headers=world.headers).json()
    return {line["name"]: line for line in lines}["card"]


def shown_hash(world: BatchWorld) -> str:
    return shown_line(world)["content_hash"]


def shown_page(world: BatchWorld) -> str:
    return str(world.client.get("/dashboard/pdf", headers=world.cookie("ayse")).text)


def _template(world: BatchWorld) -> Path:
    assert world.settings.pdf_templates is not None
    return world.settings.pdf_templates / "card" / "template.html"
