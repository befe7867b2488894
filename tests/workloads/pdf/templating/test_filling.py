"""Templates that cost too much: each is stopped, and holds no other up."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kesin.workloads.pdf.channel import ChildChannel
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.templating.fill_child import MAX_TASKS
from kesin.workloads.pdf.templating.filling import LIMITS as DEFAULTS
from kesin.workloads.pdf.templating.filling import MAX_IDLE, MAX_REPLY_BYTES, FillHelper, fill_helper
from kesin.workloads.pdf.templating.library import TemplateLibrary
from kesin.workloads.pdf.templating.pictures import PictureLimits
from tests.attacks.bombs import png
from tests.cli.programs import wait_until
from tests.workloads.pdf.templating.test_library import PAGE, refusal, write
from tests.workloads.secrets_hidden import assert_no_secrets, set_secrets

pytestmark = pytest.mark.starts
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
LIMITS = DEFAULTS._replace(cpu_s=0.15, wall_s=20, memory_bytes=256 * 1024 * 1024)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> TemplateLibrary:
    folder = tmp_path_factory.mktemp("own")
    bodies = {
        "loop": LOOP,
        "memory": "{% set a = (x * 9000).replace('a', x * 9000) %}{{ a.replace('a', a) | length }}",
        "compile": "{{ '%050000000d' % 1 }}",
        "compile_filter": "{{ 'a' | center(50000000) }}",
        "sound": "{{ x }}",
    }
    for name, body in bodies.items():
        write(folder, name, PAGE.format(body))
    return TemplateLibrary.load([folder], limits=LIMITS, pictures=PictureLimits(1_000, 2_000))


def test_a_template_that_cannot_be_compiled_breaks_only_itself(library):
    assert library.broken.keys() == {"compile", "compile_filter"}
    for name, problem in library.broken.items():
        assert problem.code == "TEMPLATE_TOO_COSTLY"
        assert f"template {name}: it was stopped" in problem.message
    assert "<body>7" in library.render_html("sound", {"x": 7})


def test_a_template_that_costs_too_much_is_stopped(library):
    for name in ("loop", "memory"):
        problem = refusal(library.render_html, name, {"x": "a"})
        assert problem.code == "TEMPLATE_TOO_COSTLY", name
        assert f"template {name}: it was stopped: it needed more than 0.15 s" in problem.message, name
        assert "or 256 MiB of memory" in problem.message, name


def test_others_are_filled_in_while_one_loops(library):
    failures: list[RenderFailed] = []
    looping = threading.Thread(target=lambda: failures.append(refusal(library.render_html, "loop", {})))
    looping.start()
    while looping.is_alive():
        assert "<body>7" in library.render_html("sound", {"x": 7})
    looping.join()
    assert [failure.code for failure in failures] == ["TEMPLATE_TOO_COSTLY"]


def test_one_that_waits_too_long_may_be_tried_again(library):
    limits = DEFAULTS._replace(cpu_s=20, wall_s=0.2)
    with pytest.raises(RenderFailed) as failed:
        fill_helper().run("loop", library._file.fileno(), _task(library, "loop"), b"{}", limits)
    assert failed.value.code == "NAVIGATION_TIMEOUT"


def _task(library: TemplateLibrary, name: str) -> dict[str, object]:
    parts = [library._parts[""], library._parts[name]]
    return {"fill": name, "pictures": {}, "parts": parts}


def test_pictures_of_the_finished_document_are_measured(library):
    assert "data:image" in library.render_html("sound", {"x": png(20)})
    [problem] = library.find_problems("sound", {"x": png(40)})
    assert (problem.path, problem.rule) == ("/x", "pixels")


def test_a_picture_beside_a_template_is_measured_when_it_is_loaded(tmp_path):
    place = write(tmp_path, "mine", PAGE.format("x"))
    (place / "logo.bmp").write_bytes(b"BM" + bytes(30))
    (place / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    library = TemplateLibrary.load([tmp_path])
    assert "mine/logo.png: the size of a picture cannot be read" in str(library.broken["mine"])


@pytest.fixture(scope="module")
def started() -> Iterator[FillHelper]:
    helper = FillHelper()
    yield helper
    helper.stop()


@pytest.fixture
def helper(started, library) -> FillHelper:
    """One for the module, without children at the beginning of a test."""
    fill(started, library)
    while started._idle:
        started._idle.pop().close()
    wait_until(lambda: not children(started))
    return started


def fill(helper: FillHelper, library: TemplateLibrary, name: str = "sound") -> bytes:
    task = _task(library, name)
    return helper.run(name, library._file.fileno(), task, b'{"x": "a"}', LIMITS)


def children(helper: FillHelper) -> set[int]:
    assert helper._child is not None
    pid = helper._child.process.pid
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()))


def test_a_child_is_kept_until_it_has_done_enough(helper, library):
    assert b"<body>a" in fill(helper, library)
    first = children(helper)
    assert len(first) == 1
    for _ in range(MAX_TASKS - 1):
        fill(helper, library)
    assert helper._idle == []
    fill(helper, library)
    assert children(helper).isdisjoint(first)


def test_a_child_that_was_stopped_or_died_is_replaced(helper, library):
    fill(helper, library)
    for name in ("loop", "memory"):
        assert refusal(fill, helper, library, name).code == "TEMPLATE_TOO_COSTLY"
        assert helper._idle == []
    fill(helper, library)
    for child in children(helper):
        os.kill(child, signal.SIGKILL)
    assert b"<body>a" in fill(helper, library)


def test_a_kept_child_that_dies_at_its_task_is_no_fault_of_the_template(helper, library):
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.shutdown(socket.SHUT_WR)  # it takes the task, and never replies
        helper._idle.append(ChildChannel(ours, MAX_REPLY_BYTES))
        assert b"<body>a" in fill(helper, library)


def test_a_helper_that_was_killed_is_replaced_and_has_a_minimal_environment(helper, library, monkeypatch):
    set_secrets(monkeypatch)
    first = helper._child.process.pid
    helper._child.process.kill()
    assert b"<body>a" in fill(helper, library)
    assert helper._child.process.pid != first
    assert_no_secrets([helper._child.process.pid, *children(helper)])


def test_many_fill_at_once_and_few_wait_for_more(helper, library):
    with ThreadPoolExecutor(8) as threads:
        pages = list(threads.map(lambda _: fill(helper, library), range(8)))
    assert [b"<body>a" in page for page in pages] == [True] * 8
    assert len(helper._idle) <= MAX_IDLE


def test_a_forked_process_has_a_helper_of_its_own(library):
    library.render_html("sound", {"x": 7})
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if "<body>7" in library.render_html("sound", {"x": 7}) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert "<body>7" in library.render_html("sound", {"x": 7})
