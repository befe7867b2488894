"""The page of the versions of templates: upload, preview, activate, go back, delete."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.pdf.api.test_versions import package
from tests.workloads.pdf.batching import BatchWorld, opened_batches

PATH = "/dashboard/pdf/templates"


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BatchWorld]:
    with opened_batches("sqlite", tmp_path, request) as world:
        world.person("ayse", "admin", all_sites=True)
        yield world


def send(world: BatchWorld, **fields: Any) -> Any:
    """Send a form of the page; ``file`` is its file."""
    body = b""
    for name, value in fields.items():
        file = b'; filename="card.zip"' if name == "file" else b""
        data = value if isinstance(value, bytes) else value.encode()
        head = b'--x\r\nContent-Disposition: form-data; name="' + name.encode() + b'"' + file
        body += head + b"\r\n\r\n" + data + b"\r\n"
    headers = world.cookie("ayse") | {"content-type": "multipart/form-data; boundary=x"}
    return world.client.post(PATH, content=body + b"--x--\r\n", headers=headers)


def shown(world: BatchWorld, path: str = PATH, status: int = 200) -> str:
    response = world.client.get(path, headers=world.cookie("ayse"))
    assert response.status_code == status, response.text
    return str(response.text)


def uploaded(world: BatchWorld, text: str) -> str:
    """Upload a version; return it from the address that follows."""
    response = send(world, do="upload", name="card", file=package(text))
    assert response.status_code == 303, response.text
    return str(response.headers["location"].rpartition("version=")[2])


def test_a_version_is_uploaded_previewed_activated_and_taken_back(world):
    assert "No versions of this template" in shown(world)
    first, second = uploaded(world, "one "), uploaded(world, "two ")
    page = shown(world, f"{PATH}?name=card&version={first}")
    assert page.index(f">{second[:12]}</a>") < page.index(f">{first[:12]}</a>")
    document = f"{PATH}/card/{first}/document"
    assert f'src="{document}"' in page
    assert "one sample" in shown(world, document)

    dialog = shown(world, f"{PATH}/card/dialog?do=activate&version={first}")
    assert "All processes will use this version to make new PDFs" in dialog
    assert first in dialog
    assert send(world, do="activate", name="card", version=first).status_code == 303
    page = shown(world, f"{PATH}?name=card")
    assert "previously active" not in page
    assert "Deactivate…" in page
    assert send(world, do="activate", name="card", version=second).status_code == 303
    page = shown(world, f"{PATH}?name=card")
    assert "previously active" in page
    assert "Go back to this version…" in page
    assert "key:" not in page
    assert "ayse" in page

    refused = send(world, do="delete", name="card", version=second)
    assert refused.status_code == 409
    assert "it is active: activate another version first" in refused.text
    assert send(world, do="delete", name="card", version=first).status_code == 303
    assert first not in shown(world, f"{PATH}?name=card")
    assert "If there is none" in shown(world, f"{PATH}/card/dialog?do=activate&version=folder")
    assert send(world, do="activate", name="card", version="folder").status_code == 303
    assert "Deactivate…" not in shown(world, f"{PATH}?name=card")


def test_an_upload_with_an_error_shows_its_line(world):
    refused = send(world, do="upload", name="card", file=package("\n{{ nam }}"))
    assert refused.status_code == 400
    assert "Nothing was changed." in refused.text
    assert "line 2: &#39;nam&#39; is missing" in refused.text
    assert "&gt;    2  {{ nam }}" in refused.text
    refused = send(world, do="upload", name="card", file=b"no zip")
    assert (refused.status_code, "BAD_TEMPLATE_ZIP" in refused.text) == (422, True)


def test_the_frame_says_why_a_version_cannot_be_shown(world):
    version = uploaded(world, "one ")
    (world.folder / f"templates/card/{version}.zip").write_bytes(b"")
    page = shown(world, f"{PATH}/card/{version}/document", 400)
    assert "the version cannot be read" in page
    assert "in the template folder" not in page
    page = shown(world, f"{PATH}/other/dialog?do=delete&version=x", 404)
    assert "this template has no versions" in page
