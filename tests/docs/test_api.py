"""The page about the API against the API: every path is told, and every example works."""

import asyncio
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest
from fastapi import FastAPI

from kesin.engine.queue import New
from kesin.foundation import problems
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.store.open import open_store
from kesin.web.app import create_app
from kesin.web.service import Service
from kesin.workloads import workloads
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "api.md"
TOLD = (
    "/api/queues", "/api/jobs", "/api/session", "/api/sites", "/api/cron", "/health", "/metrics",
    "/api/oci",
)  # fmt: skip
IN_A_TABLE = ("/api/oci/", "/api/cron/oci/")  # the pages about conversions have the examples
SECRET = "a secret for the cron caller"
URL = "http://127.0.0.1:8000"


@dataclass
class Curl:
    """As much of curl as the page uses."""

    method: str = "GET"
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None
    stays: bool = False

    @classmethod
    def read(cls, line: str, values: dict[str, str]) -> "Curl":
        for name, value in values.items():
            line = re.sub(rf"\${name}\b", value, line)
        words = iter(shlex.split(line)[1:])
        asked = cls()
        for word in words:
            if word == "-X":
                asked.method = next(words)
            elif word == "-H":
                name, _, value = next(words).partition(": ")
                asked.headers[name] = value
            elif word == "--json":
                asked.method, asked.body = "POST", next(words)
                asked.headers["content-type"] = "application/json"
            elif word in {"-b", "-c"}:
                next(words)  # the client keeps cookies
            elif word == "-N":
                asked.stays = True
            else:
                assert not word.startswith("-"), f"the page uses {word}, which is not read here"
                asked.url = word
        return asked

    def pattern(self, job_id: str) -> str:
        """The path as the page names it."""
        path = self.url.removeprefix(URL).partition("?")[0]
        return path.replace("/queues/pdf", "/queues/{queue}").replace(job_id, "{job_id}")


def examples() -> list[str]:
    text = "\n".join(one.text for one in blocks(PAGE) if one.language == "sh")
    return [line for line in text.replace("\\\n", " ").splitlines() if line.startswith("curl ")]


@pytest.fixture
def service(tmp_path) -> Iterator[Service]:
    store = open_store(str(tmp_path / "kesin.db"))
    settings = Settings(data_dir=tmp_path, cron_secret=SECRET)
    yield Service(settings, store, workloads(), work=False)
    store.close()


@pytest.fixture
def paths(service) -> set[tuple[str, str]]:
    found = create_app(service).openapi()["paths"]
    return {(method.upper(), path) for path, methods in found.items() for method in methods}


def told() -> set[tuple[str, str]]:
    return set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`\s?]*)`", PAGE.read_text("utf-8")))


def test_every_path_told_is_there(paths):
    assert told() - paths == set()


def test_every_path_there_is_told(paths):
    assert {one for one in paths if one[1].startswith(TOLD)} - told() == set()


async def follow(app: FastAPI, asked: list[Curl]) -> list[httpx.Response]:
    """The answers to these requests, by one client that keeps its cookies."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
        return [
            await client.request(one.method, one.url, headers=one.headers, content=one.body)
            for one in asked
        ]


def test_every_path_has_an_example_that_works(service):
    by = system_actor("test")
    service.accounts.add_user(by, "ayse", "correct horse battery", role="admin")
    key, _ = service.accounts.create_key(by, "test", ["admin"])
    job = service.queues["pdf"].enqueue_many([New({"n": 0})])[0]
    values = {"KESIN_CRON_SECRET": SECRET, "KEY": key, "URL": URL, "ID": job.id}
    asked = [Curl.read(line, values) for line in examples()]
    ending = [one for one in asked if not one.stays]  # the others would go on for ever
    answers = asyncio.run(follow(create_app(service), ending))
    refused = [(one.request.url, one.text) for one in answers if not one.is_success]
    assert refused == []
    shown = {(one.method, one.pattern(job.id)) for one in asked}
    assert shown == {one for one in told() if not one[1].startswith(IN_A_TABLE)}


def test_every_code_of_a_problem_is_told():
    page = PAGE.read_text("utf-8")
    kinds = [one for one in vars(problems).values() if isinstance(one, type)]
    codes = {(one.status, one.code) for one in kinds if issubclass(one, problems.Problem)}
    rows = re.findall(r"^\| (\d{3}) \| (.+?) \|", page, re.MULTILINE)
    listed = {(int(status), code) for status, cell in rows for code in re.findall(r"`(\w+)`", cell)}
    assert codes <= listed
