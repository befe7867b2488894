"""The helper that fills in templates: with one thread, it safely forks a child per connection."""

import base64
import gc
import json
import marshal
import os
import re
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

from lxml import etree  # type: ignore[import-untyped]  # pikepdf brings it
from markupsafe import Markup

from kesin.workloads.pdf.channel import ChildChannel, ChildLimits, failure_head, set_limits
from kesin.workloads.pdf.errors import HTML_REFUSED, RenderFailed
from kesin.workloads.pdf.security import LIBRARY_CSP, csp_tag
from kesin.workloads.pdf.templating.filling import MAX_REPLY_BYTES, too_costly
from kesin.workloads.pdf.templating.filters import DEFAULT_LANGUAGE, TEMPLATE_FUNCTIONS, Unprintable
from kesin.workloads.pdf.templating.pictures import PictureLimits, pixel_count
from kesin.workloads.pdf.templating.sandbox import Sandbox, template_failure

IMAGE_TYPES: Final = {
    **{f".{kind}": f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp")},
    ".jpg": "image/jpeg",
    ".svg": "image/svg+xml",
}
MAX_TASKS: Final = 100  # of a child
MAX_KEPT_BYTES: Final = 160 * 1024 * 1024  # memory of a child that is kept
_ALARM_AFTER_S: Final = 5.0  # the parent gave up before
_HEAD: Final = re.compile(r"<head(?:\s[^>]*)?>", re.IGNORECASE)
# In HTML of a client: they lead to another page, or show one, which the network guard blocks.
_REFUSED: Final = frozenset({"base", "iframe", "frame", "object", "embed"})
_HEAD_TAGS: Final = f'<meta charset="utf-8">{csp_tag(LIBRARY_CSP)}'


def fill_in(library: dict[str, Any], name: str, variables: dict[str, Any]) -> str:
    """Return the document of a template; raises RenderFailed."""
    lang = str(variables.get("lang", DEFAULT_LANGUAGE))
    if not re.fullmatch(r"[a-z]{2}(-[A-Z]{2})?", lang):
        raise template_failure(name, "variables/lang must be a language such as tr or en")
    texts, pictures = library["texts"], library["pictures"]
    globals_ = {
        "lang": lang,
        "t": texts.get(lang) or texts.get(lang[:2]) or texts.get(DEFAULT_LANGUAGE) or {},
        "fonts": Markup(library["fonts"]),  # noqa: S704  # consists of base64
        "asset": lambda file: _asset_uri(pictures, file),
        **TEMPLATE_FUNCTIONS,
    }
    sandbox = Sandbox(library["sources"], marshal.loads(library["compiled"]))  # noqa: S302
    page = sandbox.render(f"{name}/template.html", {**variables, **globals_})
    head = _HEAD.search(page)
    if head is None:
        raise template_failure(f"{name}/template.html", "it has no <head>")
    return page[: head.end()] + _HEAD_TAGS + page[head.end() :]


def _asset_uri(pictures: dict[str, bytes], file: str) -> str:
    if file not in pictures:
        raise Unprintable("expected the name of a picture in the template's folder")
    kind = IMAGE_TYPES[Path(file).suffix.lower()]
    return f"data:{kind};base64,{base64.b64encode(pictures[file]).decode()}"


class _Inspector:
    """What the parser calls: it builds no tree, so that deep HTML costs little."""

    def __init__(self) -> None:
        self.title: list[str] = []
        self._titles = 0
        self._in_title = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._titles += tag == "title"
        self._in_title = tag == "title" and self._titles == 1
        refreshes = attributes.get("http-equiv", "").strip().lower() == "refresh"
        if tag in _REFUSED or (tag == "meta" and refreshes):
            name = '<meta http-equiv="refresh">' if refreshes else f"<{tag}>"
            raise RenderFailed(HTML_REFUSED, "%(what)s is not allowed in HTML", what=name)

    def end(self, tag: str) -> None:
        self._in_title &= tag != "title"

    def data(self, text: str) -> None:
        if self._in_title:
            self.title.append(text)

    def close(self) -> str:
        return " ".join("".join(self.title).split())[:200]


def inspect_html(html: str) -> str:
    """Return the title of a document; raises RenderFailed for an element that is refused."""
    parser = etree.HTMLParser(target=_Inspector(), huge_tree=True, encoding="utf-8")
    parser.feed(html.encode("utf-8", "replace"))
    title: str = parser.close()
    return title


def _perform(task: dict[str, Any], body: bytes, library: dict[str, Any]) -> bytes:
    if "check" in task:
        compiled: dict[str, bytes] = {}
        Sandbox(library["sources"], compiled).check_files(task["check"])
        return marshal.dumps(compiled)
    pictures = PictureLimits(**task["pictures"])
    if "fill" not in task:
        pictures.check(html := body.decode())
        return inspect_html(html).encode()
    page = fill_in(library, task["fill"], json.loads(body))
    pictures.check(page.replace(library["fonts"], ""))
    return page.encode()


def _answer_all(connection: int) -> None:
    with socket.socket(fileno=connection) as opened:
        channel = ChildChannel(opened)
        for done in range(1, MAX_TASKS + 1):
            library = channel.receive_file()
            if library is None:
                return
            head, reply = _answer(*channel.receive(), library)
            os.close(library)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MAX_KEPT_BYTES
            head.setdefault("last", grown or done == MAX_TASKS)
            channel.send(head, reply)
            if head["last"]:
                return


def _answer(task: dict[str, Any], body: bytes, library: int) -> tuple[dict[str, Any], bytes]:
    limits = ChildLimits(**task["limits"])
    set_limits(limits.memory_bytes, limits.cpu_s, limits.wall_s + _ALARM_AFTER_S)
    try:
        content: dict[str, Any] = {}
        for offset, size in task["parts"]:
            content |= marshal.loads(os.pread(library, size, offset))  # noqa: S302
        reply = _perform(task, body, content)
        if len(reply) > MAX_REPLY_BYTES:
            raise too_costly(task["name"], limits)
    except RenderFailed as problem:
        return failure_head(problem), b""
    except MemoryError:
        return failure_head(too_costly(task["name"], limits)) | {"last": True}, b""
    else:
        return {}, reply
    finally:
        set_limits(sys.maxsize, 0, 0)  # between two tasks


def main() -> None:
    """Fork for each connection that comes over the socket, the first argument, until it closes."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)  # a group is stopped: tasks in hand still end
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    pixel_count(b"")  # loads what children need, once
    inspect_html("")
    Sandbox({"page": "{{ 1 | money }}{{ 'x' | qr }}"}, {}).render("page", {})
    gc.freeze()  # a collection in a child would copy all memory
    with socket.socket(fileno=int(sys.argv[1])) as control:
        while True:
            sign, files, _, _ = socket.recv_fds(control, 1, 1)
            if not sign:
                return
            try:
                child = os.fork()
            except OSError:  # the caller sees a closed connection and tries again
                child = -1
            if child == 0:
                try:
                    _answer_all(*files)
                finally:
                    os._exit(0)
            for file in files:
                os.close(file)


if __name__ == "__main__":
    main()
