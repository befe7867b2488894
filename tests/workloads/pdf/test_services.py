"""Templates that change on the disk are noticed by the routes and by the workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kesin.foundation.problems import Unavailable
from kesin.workloads.pdf.doctor import run_checks
from kesin.workloads.pdf.services import TemplateSource, create_renderer
from tests.workloads.pdf.batching import TEMPLATE, BatchWorld, opened_batches


def test_a_changed_template_is_used_without_a_restart(request, tmp_path):
    with opened_batches("sqlite", tmp_path, request) as world:
        worker = create_renderer(world.settings, world.pdf)
        before = shown_hash(world)
        assert worker.library.get("card").content_hash == before
        _template(world).write_text(TEMPLATE + "<!-- another -->")
        after = shown_hash(world)
        assert after != before
        assert worker.library.get("card").content_hash == after


def test_a_change_that_cannot_be_used_leaves_the_templates_as_they_were(request, tmp_path):
    with opened_batches("sqlite", tmp_path, request) as world:
        world.person("ayse", "admin", all_sites=True)
        source, before = TemplateSource(world.settings), shown_hash(world)
        assert "The last change" not in shown_page(world)
        first = source.library()
        _template(world).write_text("{% if %}")
        assert source.library() is first
        assert shown_hash(world) == before
        [check] = [one for one in run_checks(world.settings) if "card/template.html" in one.found]
        assert not check.ok
        assert "The last change of a template cannot be used" in shown_page(world)
        _template(world).write_text(TEMPLATE + "<!-- mended -->")
        assert source.library() is not first


def test_templates_that_never_could_be_used_are_an_error(request, tmp_path):
    with opened_batches("sqlite", tmp_path, request) as world:
        settings = world.settings.model_copy(update={"pdf_templates": tmp_path / "none"})
        with pytest.raises(Unavailable, match="there is no folder"):
            TemplateSource(settings).library()


def shown_hash(world: BatchWorld) -> str:
    lines = world.client.get("/pdf/templates", headers=world.headers).json()
    return str({line["name"]: line["content_hash"] for line in lines}["card"])


def shown_page(world: BatchWorld) -> str:
    return str(world.client.get("/dashboard/pdf", headers=world.cookie("ayse")).text)


def _template(world: BatchWorld) -> Path:
    assert world.settings.pdf_templates is not None
    return world.settings.pdf_templates / "card" / "template.html"
