"""Templates that change on the disk are noticed by the routes and by the workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import Settings
from kesin.workloads.pdf.doctor import run_checks
from kesin.workloads.pdf.services import TemplateSource, create_renderer
from tests.workloads.pdf.batching import TEMPLATE, BatchWorld, opened_batches


def test_a_changed_template_is_used_without_a_restart_if_it_can_be_used(request, tmp_path):
    with opened_batches("sqlite", tmp_path, request) as world:
        world.person("ayse", "admin", all_sites=True)
        worker, source = create_renderer(world.settings, world.pdf), TemplateSource(world.settings)
        first, before = source.library(), shown_hash(world)
        assert worker.library.get("card").content_hash == before
        assert "The last change" not in shown_page(world)

        _template(world).write_text("{% if %}")
        assert source.library() is first
        assert shown_hash(world) == worker.library.get("card").content_hash == before
        check = next(one for one in run_checks(world.settings) if "card/template" in one.found)
        assert not check.ok
        assert "The last change of a template cannot be used" in shown_page(world)

        _template(world).write_text(TEMPLATE + "<!-- mended -->")
        assert source.library() is not first
        after = shown_hash(world)
        assert after != before
        assert worker.library.get("card").content_hash == after


def test_templates_that_never_could_be_used_are_an_error(tmp_path):
    with pytest.raises(Unavailable, match="there is no folder"):
        TemplateSource(Settings(pdf_templates=tmp_path / "none")).library()


def shown_hash(world: BatchWorld) -> str:
    lines = world.client.get("/pdf/templates", headers=world.headers).json()
    return str({line["name"]: line["content_hash"] for line in lines}["card"])


def shown_page(world: BatchWorld) -> str:
    return str(world.client.get("/dashboard/pdf", headers=world.cookie("ayse")).text)


def _template(world: BatchWorld) -> Path:
    assert world.settings.pdf_templates is not None
    return world.settings.pdf_templates / "card" / "template.html"
