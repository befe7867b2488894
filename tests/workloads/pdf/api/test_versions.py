"""Templates that are uploaded: drafts, activation, pins, going back, and what is refused."""

import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from kesin.store.errors import StoreUnreachable
from kesin.store.metadata import metadata_for
from kesin.store.sqlite.store import SqliteStore
from kesin.store.transfer.copy_directory import copy_metadata
from kesin.workloads.pdf.cleanup import delete_expired
from kesin.workloads.pdf.jobs import submit
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from kesin.workloads.pdf.jobs.worker import PdfRenderWorker
from kesin.workloads.pdf.services import PdfServiceLoader, PdfServices, open_templates, render_config
from tests.web.conftest import actor as actor_of
from tests.web.conftest import error_of
from tests.workloads.pdf.batching import TEMPLATE, BatchWorld, opened_batches
from tests.workloads.pdf.front import at_once

SCHEMA = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


class Press:
    """The service, an admin's key, and a renderer of another process."""

    def __init__(self, world: BatchWorld) -> None:
        self.world, self.client = world, world.client
        self.boss, self.user = world.key("admin"), world.key("pdf")
        self.source = open_templates(world.settings, world.pdf)
        self.renderer = PdfRenderWorker(
            world.printer.job_store,
            world.printer.artifact_store,
            render_config(world.settings),
            library=self.source.library,
            engines=lambda _: world.engine,
        )
        world.engine.printed.clear()
        Heartbeat(world.pdf.store, "one", now=world.pdf.now).beat()

    @property
    def services(self) -> PdfServices:
        return PdfServiceLoader(self.world.context).services

    def put(self, body: bytes, name: str = "card", **headers: str) -> Any:
        headers = {**self.boss, "content-type": "application/zip", **headers}
        return self.client.put(f"/pdf/templates/{name}", content=body, headers=headers)

    def draft(self, text: str, name: str = "card") -> str:
        """Upload a template that prints this text before the name; return its version."""
        response = self.put(package(text), name)
        assert response.status_code == 201, response.text
        assert response.json()["state"] == "draft"
        return str(response.json()["version"])

    def act(self, version: str, action: str = "activate", name: str = "card") -> Any:
        path = f"/pdf/templates/{name}/versions/{version}"
        if action == "delete":
            return self.client.delete(path, headers=self.boss)
        return self.client.post(f"{path}/{action}", headers=self.boss)

    def activate(self, version: str, name: str = "card") -> None:
        response = self.act(version, name=name)
        assert response.status_code == 200, response.text
        states = {each["version"]: each["state"] for each in response.json()["versions"]}
        assert states[version] == "active"

    def listed(self, name: str = "card") -> dict[str, Any]:
        response = self.client.get(f"/pdf/templates/{name}/versions", headers=self.boss)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def states(self, name: str = "card") -> list[str]:
        return [each["state"] for each in self.listed(name)["versions"]]

    def ask(self, template: str, who: str = "Ada") -> Any:
        body = {"template_name": template, "variables": {"name": who}}
        return self.client.post("/pdf/jobs", json=body, headers=self.user)

    def requested(self, template: str, who: str = "Ada") -> str:
        response = self.ask(template, who)
        assert response.status_code == 202, response.text
        return str(response.json()["job_id"])

    def print(self, job_id: str) -> str:
        """Render a job elsewhere; return what was printed, or the error."""
        self.renderer.process_job(job_id)
        body = self.job(job_id)
        return body["error_message"] or self.world.engine.printed[-1]

    def job(self, job_id: str) -> dict[str, Any]:
        body: dict[str, Any] = self.client.get(f"/pdf/jobs/{job_id}", headers=self.user).json()
        return body

    def pass_second(self) -> None:
        self.world.clock.advance(1)


def package(text: str = "", **files: str) -> bytes:
    """A zip of a template with the name of a person, and further files."""
    page = TEMPLATE.replace("{{ name }}", f"{text}{{{{ name }}}}")
    content = {"template.html": page, "schema.json": json.dumps(SCHEMA), "sample.json": '{"name": "sample"}'} | {
        name.replace("__", "."): data for name, data in files.items()
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return packed.getvalue()


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"])
def each_press(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Press]:
    """One for two tests, each with a template of its own."""
    with opened_batches(request.param, tmp_path_factory.mktemp("each"), request) as world:
        yield Press(world)


@pytest.fixture
def press(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Press]:
    with opened_batches("sqlite", tmp_path, request) as world:
        yield Press(world)


def test_a_template_goes_from_draft_to_active_and_back_in_every_process(each_press):
    press = each_press
    from_folder = press.requested("card", "Ada")
    assert press.print(from_folder) == "Ada"
    first, second = press.draft("one "), press.draft("two ")
    assert press.states() == ["draft", "draft"]
    assert press.print(press.requested("card", "Bob")) == "Bob"

    press.activate(first)
    assert press.client.get("/pdf/templates", headers=press.user).json()[0]["version"] == first
    made = press.requested("card", "Ada")
    assert press.job(made)["template_version"] == f"card@{first}"
    assert press.print(made) == "one Ada"  # within the second: by the version of the job
    press.pass_second()
    assert press.source.library().get("card").version == first

    press.activate(second)
    assert press.states() == ["active", "retired"]
    assert press.print(press.requested("card", "Ada")) == "two Ada"
    press.activate(first)  # back
    assert press.states() == ["retired", "active"]
    assert press.ask("card", "Ada").json()["job_id"] == made
    press.activate(first)
    went = press.act("folder").json()
    assert {each["state"] for each in went["versions"]} == {"retired"}
    assert press.ask("card", "Ada").json()["job_id"] == from_folder

    lines = [line for line in press.world.audit() if line.target == "card"]
    assert [line.action for line in lines] == [
        *["pdf.upload_version"] * 2, *["pdf.activate_version"] * 4,
    ]  # fmt: skip
    assert json.loads(lines[-2].details or "") == {"before": second, "version": first}


def test_changes_at_the_same_moment_are_all_kept_on_every_database(each_press):
    press = each_press
    uploads = [partial(press.draft, f"{number} ", "letter") for number in range(4)]
    act = partial(press.act, name="letter")
    drafts = at_once(uploads)
    assert {each["version"] for each in press.listed("letter")["versions"]} == set(drafts)
    assert {response.status_code for response in at_once([partial(act, drafts[0])] * 4)} == {200}
    changes = [partial(act, version) for version in drafts[1:3]]
    deleted = at_once([*changes, partial(act, drafts[3], "delete")])
    assert [response.status_code for response in deleted] == [200, 200, 204]
    assert sorted(press.states("letter")) == ["active", "retired", "retired"]
    stored = {file.key for file in press.world.batches.storage.list("templates/letter")}
    assert stored == {f"templates/letter/{version}.zip" for version in drafts[:3]}


def test_an_upload_is_the_same_version_however_it_was_packed(press):
    version = press.draft("one ")
    wrapped = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package("one "))) as before, zipfile.ZipFile(wrapped, "w") as z:
        for name in reversed(before.namelist()):
            z.writestr(f"card/{name}", before.read(name))
        z.writestr("card/.DS_Store", "x")
        z.writestr("__MACOSX/card/._x", "x")
    again = press.put(wrapped.getvalue())
    assert (again.status_code, again.json()["version"]) == (201, version)
    assert len(press.listed()["versions"]) == 1
    key = f"templates/card/{version}.zip"
    stored = [file.key for file in press.world.batches.storage.list("templates")]
    assert stored == [key]


def test_a_name_with_its_version_prints_that_version_and_no_other(press):
    first, second = press.draft("one "), press.draft("two ")
    press.activate(second)
    pinned = press.requested(f"card@{first}")
    assert press.job(pinned)["template_name"] == "card"
    assert press.print(pinned) == "one Ada"
    assert press.ask(f"card@{first}").json()["job_id"] == pinned
    for unknown in (f"card@{'0' * 64}", "card@", "card@x", f"nothing@{first}", "a\u00e7@1"):
        error = error_of(press.ask(unknown))
        assert error["code"] == "TEMPLATE_ERROR", unknown

    waiting, follows = press.requested(f"card@{first}", "Bob"), press.requested("card", "Bob")
    press.activate(first)
    press.activate(second)
    third = press.draft("three ")
    press.activate(third)
    for version in (first, second):
        assert press.act(version, "delete").status_code == 204
    assert press.ask(f"card@{first}", "Cem").status_code == 400
    press.pass_second()
    assert "there is no such version" in press.print(waiting)
    assert press.print(follows) == "three Bob"
    assert "changed after this PDF was requested" in press.job(follows)["warnings"][0]
    assert press.act(third, "delete").status_code == 409
    assert press.act(first, "delete").status_code == 404
    assert press.act(first).status_code == 404


def test_rows_of_a_batch_are_printed_with_the_version_that_it_names(press):
    first, second = press.draft("one "), press.draft("two ")
    press.activate(second)
    body = {"template_name": f"card@{first}", "rows": [{"name": "Ada"}, {"name": "Bob"}]}
    made = press.client.post("/pdf/batches", json=body, headers=press.user)
    assert made.status_code == 202, made.text
    worker = press.world.worker(lambda _: [press.renderer.process_job(job.id)
                                           for job in press.world.pdf.peek(limit=9)])  # fmt: skip
    worker.run_once()
    assert press.world.engine.printed == ["one Ada", "one Bob"]


def test_a_name_that_is_not_on_the_list_is_allowed_while_it_has_an_active_version(press):
    version = press.draft("new ", "letter")
    assert error_of(press.ask("letter"))["code"] == "TEMPLATE_ERROR"
    assert error_of(press.ask(f"letter@{version}"))["code"] == "TEMPLATE_ERROR"
    press.activate(version, "letter")
    assert press.print(press.requested("letter")) == "new Ada"
    press.act("folder", name="letter")
    assert press.ask("letter").status_code == 400


def test_what_cannot_be_used_is_refused_with_its_line_and_nothing_is_stored(press):
    for body, code, reason in (
        (package("{{ nam }}"), "TEMPLATE_ERROR", "line 1: 'nam' is missing"),
        (package("{% if %}"), "TEMPLATE_ERROR", "line 1: syntax error"),
        (package(schema__json="["), "TEMPLATE_ERROR", "schema.json is not JSON"),
        (package(sample__json="{}"), "TEMPLATE_ERROR", "sample.json: /name is missing"),
        (b"PK\x03\x04", "BAD_TEMPLATE_ZIP", "not a complete zip"),
        (b"", "BAD_TEMPLATE_ZIP", "not a complete zip"),
    ):
        error = error_of(press.put(body))
        assert (error["code"], reason in error["message"]) == (code, True), error
    error = error_of(press.put(package("\n{{ nam }}")))
    assert error["details"]["line"] == 2
    assert ">    2  {{ nam }}" in error["details"]["excerpt"]
    assert press.put(package(), "Bad.Name").status_code == 422
    assert press.client.get("/pdf/templates/card/versions", headers=press.boss).status_code == 404
    assert not list(press.world.batches.storage.list("templates"))


def test_a_version_that_cannot_be_read_stops_no_other(press):
    broken, sound = press.draft("one "), press.draft("two ", "letter")
    press.activate(broken)
    press.activate(sound, "letter")
    path = press.world.folder / f"templates/card/{broken}.zip"
    data = path.read_bytes()
    for content in (None, package("evil "), b"x"):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        fresh = open_templates(press.world.settings, press.world.pdf)
        library = fresh.library()
        assert library.names == ("letter",)
        assert "the version cannot be read" in str(library.broken["card"])
        assert press.act(broken).status_code == 400
        if content is None:
            path.write_bytes(b"")
    library = fresh.library()  # again at once, then every 30 s
    assert press.put(package("one ")).status_code == 201
    assert path.read_bytes() == data
    assert fresh.library() is library
    press.world.clock.advance(30)
    assert fresh.library().names == ("card", "letter")


def test_a_job_whose_version_cannot_be_read_fails_rather_than_printing_another(press):
    first = press.draft("one ")
    press.activate(first)
    waiting = press.requested("card")
    press.activate(press.draft("two "))
    (press.world.folder / f"templates/card/{first}.zip").unlink()
    assert "the version cannot be read" in press.print(waiting)
    assert press.job(waiting)["error_code"] == "TEMPLATE_ERROR"
    assert press.print(press.requested("card")) == "two Ada"


def test_a_job_is_made_again_with_its_pin_or_with_the_current_template(press):
    def payload(job_id):
        job = press.world.printer.job_store.get_job(job_id)
        actor = actor_of("somebody")
        return submit.repeat_request(press.services, job, actor).payload

    from_folder = press.requested("card")
    assert payload(from_folder).keys().isdisjoint({"version", "pinned"})
    first, second = press.draft("one "), press.draft("two ")
    press.activate(first)
    follows, pinned = press.requested("card"), press.requested(f"card@{first}")
    assert follows != pinned
    press.activate(second)
    assert payload(from_folder)["version"] == payload(follows)["version"] == f"card@{second}"
    assert payload(pinned)["version"] == f"card@{first}"
    press.act("folder")
    assert "version" not in payload(follows)
    assert payload(pinned)["version"] == f"card@{first}"


def test_while_no_worker_prints_the_page_is_that_of_the_version(press):
    first, second = press.draft("one "), press.draft("two ")
    press.activate(second)
    press.world.clock.advance(60)
    body = {"template_name": f"card@{first}", "variables": {"name": "Ada"}}
    body["options"] = {"fail_safe": "degrade"}
    answer = press.client.post("/pdf/jobs", json=body, headers=press.user)
    assert answer.headers["x-pdf-fallback"] == "html"
    assert "one Ada" in answer.text


def test_an_unreachable_store_leaves_the_templates_as_they_were(press):
    press.activate(press.draft("one "))
    versions = press.source.versions
    library = press.source.library()
    press.world.clock.advance(2)
    with patch.object(versions, "lists", side_effect=StoreUnreachable("gone")):
        assert press.source.library() is library
        press.source.versions._known = None
        with pytest.raises(StoreUnreachable):
            press.source.library()


def test_the_cleanup_deletes_no_version_and_a_copy_of_the_store_has_them(press, tmp_path):
    draft, active = press.draft("one "), press.draft("two ")
    press.activate(active)
    press.world.clock.advance(30 * 86_400)
    delete_expired(press.world.context)
    assert press.states() == ["active", "draft"]
    press.activate(draft)
    with closing(SqliteStore(tmp_path / "copy.db")) as copy:
        copy_metadata(press.world.store, copy, "pdf", without="worker:")
        there, here = (
            metadata_for(store).metadata_entry("pdf", "", "template:card") for store in (copy, press.world.store)
        )
        assert there == here is not None
