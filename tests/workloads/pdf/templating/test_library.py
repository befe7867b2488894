"""Templates from folders: what is loaded, checked and rendered, and what is refused."""

import json
import shutil
from unittest.mock import patch

import pytest

from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.limits import MAX_HTML_BYTES
from kesin.workloads.pdf.security import LIBRARY_CSP
from kesin.workloads.pdf.templating.library import TemplateLibrary
from kesin.workloads.pdf.templating.variables import MAX_PROBLEMS

OPEN = {"type": "object"}
SCHEMA = {
    "type": "object",
    "required": ["who"],
    "additionalProperties": False,
    "properties": {
        "who": {"type": "string", "maxLength": 3},
        "on": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "iban": {"type": "string", "format": "iban"},
        "list": {"type": "array", "items": {"type": "object", "required": ["n"],
                 "properties": {"n": {"type": "integer", "minimum": 1}}}},
    },
}  # fmt: skip
PAGE = "<html><head></head><body>{}</body></html>"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "own"


@pytest.fixture
def book(folder):
    """A library of one template with this body, any variables allowed."""

    def load(body, *, schema=OPEN, sample=None, whole=False, **files):
        write(folder, "mine", body if whole else PAGE.format(body), schema, sample or {}, **files)
        return TemplateLibrary.load([folder])

    return load


@pytest.fixture
def library_of(folder):
    """A library with a template for each body: t0, t1 and so on."""

    def load(bodies):
        for number, body in enumerate(bodies):
            write(folder, f"t{number}", PAGE.format(body))
        return TemplateLibrary.load([folder])

    return load


def refusal(call, *args):
    with pytest.raises(RenderFailed) as refused:
        call(*args)
    return refused.value


def write(folder, name, page, schema=OPEN, sample=None, **files):
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "template.html").write_text(page, "utf-8")
    (place / "schema.json").write_text(json.dumps(schema), "utf-8")
    (place / "sample.json").write_text(json.dumps(sample or {}), "utf-8")
    for file, data in files.items():
        (place / file.replace("__", ".")).write_text(data, "utf-8")
    return place


def test_a_sample_that_the_machine_held_up_is_filled_in_again(tmp_path):
    write(tmp_path, "mine", PAGE.format("hello"))
    library = TemplateLibrary.load([tmp_path])
    held_up = RenderFailed(PdfErrorCode.NAVIGATION_TIMEOUT, "busy")
    with patch.object(TemplateLibrary, "render_html", side_effect=held_up):
        assert library.find_unusable() == {"mine": held_up}
    assert library.find_unusable() == {}


class TestLoading:
    def test_own_folders_are_added_and_win(self, folder):
        write(folder, "invoice", PAGE.format("mine"))
        write(folder, "letter", PAGE.format("x"))
        (folder / "Some Drafts").mkdir()  # without a template
        book = TemplateLibrary.load([SHIPPED, folder])
        assert book.names == ("conversion_report", "cutting_plan", "invoice", "letter")
        assert "mine" in book.render_html("invoice", {})

    def test_a_wrong_template_breaks_only_itself(self, tmp_path):
        def load(write_template):
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            folder.mkdir()
            write_template(folder)
            write(folder, "sound", PAGE.format("still works"))
            library = TemplateLibrary.load([folder])
            assert library.names == ("sound",)
            assert "still works" in library.render_html("sound", {})
            [(name, problem)] = library.broken.items()
            assert refusal(library.get, name) is problem
            return str(problem)

        for name in ("Bad", "a b", "-a", "_a", "a" * 65, "ş"):
            assert "a name must have" in load(lambda at, name=name: write(at, name, PAGE.format("x")))
        for file in ("schema.json", "sample.json"):
            message = load(lambda at, file=file: (write(at, "mine", "x") / file).unlink())
            assert f"template mine: {file} is missing" in message
        needs_a = {"type": "object", "required": ["a"]}
        message = load(lambda at: write(at, "mine", "x", needs_a))
        assert "sample.json: /a is missing" in message
        message = load(lambda at: write(at, "mine", "x", {"type": "text"}))
        assert "schema.json is not a schema" in message
        message = load(lambda at: (write(at, "mine", "x") / "sample.json").write_text("{", "utf-8"))
        assert "sample.json is not JSON" in message
        message = load(lambda at: write(at, "mine", "\n{% if %}"))
        assert "mine/template.html, line 2: syntax error" in message
        assert "there is no such folder" in str(refusal(TemplateLibrary.load, [tmp_path / "no"]))

    def test_escaping_cannot_be_turned_off(self, book):
        for body in (
            "{{ x | safe }}",
            "{% autoescape false %}{{ x }}{% endautoescape %}",
            "{% if false %}{% autoescape x %}{% endautoescape %}{% endif %}",
        ):
            assert book(body).broken.keys() == {"mine"}, body

    def test_a_wrong_partial_breaks_the_templates_that_include_it(self, folder):
        (folder / "partials").mkdir(parents=True)
        (folder / "partials" / "a.html").write_text("{% if %}", "utf-8")
        (folder / "partials" / "b.css").write_bytes(b"\xff")
        write(folder, "mine", PAGE.format("{% include 'partials/a.html' %}"))
        write(folder, "other", PAGE.format("x"))
        library = TemplateLibrary.load([folder])
        assert library.names == ("other",)
        assert library.broken.keys() == {"partials/a.html", "partials/b.css", "mine"}

    def test_an_unknown_name_is_a_template_error_that_does_not_repeat_it(self, book):
        library = book("x")
        for call in (library.render_html, library.find_problems):
            problem = refusal(call, "../../etc/passwd", {})
            assert problem.code == "TEMPLATE_ERROR"
            assert "passwd" not in str(problem)


class TestHash:
    def test_a_hash_follows_from_the_files_wherever_they_are(self, folder):
        for name in ("invoice", "letter"):
            write(folder, name, PAGE.format("x"), texts__json="{}")
        for file in ("fonts/sans-bold.woff2", "partials/sheet.css"):
            (folder / file).parent.mkdir()
            (folder / file).write_bytes(b"x")

        def hashes(at=folder):
            library = TemplateLibrary.load([at])
            return {name: library.get(name).content_hash for name in library.names}

        def changed(file, data=None):
            """The templates with another hash after a change to this file, which is undone."""
            path = folder / file
            before = path.read_bytes() if path.exists() else None
            path.write_bytes(data or (before or b"") + b"\n")
            after = hashes()
            if before is None:
                path.unlink()
            else:
                path.write_bytes(before)
            return {name: after[name] for name in after if after[name] != originals[name]}

        originals = hashes()
        assert originals == hashes(shutil.copytree(folder, folder.with_name("copy")))
        for file in ("template.html", "schema.json", "sample.json", "texts.json"):
            assert changed(f"invoice/{file}").keys() == {"invoice"}, file
        added, renamed = changed("invoice/a.png", b"x"), changed("invoice/b.png", b"x")
        assert added.keys() == renamed.keys() == {"invoice"}
        assert added != renamed
        for file in ("fonts/sans-bold.woff2", "partials/sheet.css"):
            assert changed(file).keys() == originals.keys(), file


class TestChecking:
    @pytest.fixture
    def check(self, book):
        library = book("x", schema=SCHEMA, sample={"who": "a"})

        def problems(variables):
            found = library.find_problems("mine", variables)
            return [(problem.path, problem.message) for problem in found]

        return problems

    def test_valid_variables_have_no_problems(self, check):
        good = {"who": "şı", "on": "2026-11-15", "at": "2026-11-15T09:00:00+03:00",
                "iban": "TR33 0006 1005 1978 6457 8413 26", "list": [{"n": 1}]}  # fmt: skip
        assert check(good) == []

    def test_every_problem_has_its_path_in_order(self, check):
        rows = [{"n": 1}, {"n": 0}, {}] + [{"n": 1}] * 8 + [{"n": "x"}]
        assert check({"on": "2026-02-30", "list": rows, "a/b": 1}) == [
            ("/a~1b", "is not a known field"),
            ("/list/1/n", "must be at least 1"),
            ("/list/2/n", "is missing"),
            ("/list/11/n", "must be integer"),
            ("/on", "must be a valid date"),
            ("/who", "is missing"),
        ]

    def test_values_are_checked_and_never_repeated(self, check):
        for field, value in (
            ("on", "20261115"), ("on", "15.11.2026"), ("at", "2026-11-15"), ("at", "noon"),
            ("iban", "TR330006100519786457841327"), ("iban", "TR33"), ("who", "long"), ("who", 1),
        ):  # fmt: skip
            [(path, message)] = check({"who": "a", field: value})
            assert path == f"/{field}"
            assert str(value) not in str(message) or value == 1
        assert check({"who": "a", "list": [{"n": True}]}) == [("/list/0/n", "must be integer")]

    def test_depth_and_odd_numbers_are_problems_too(self, check):
        deep: list = []
        for _ in range(40):
            deep = [deep]
        assert "nested deeper" in check({"who": deep})[0][1]
        assert check({"who": float("nan")})[0][0] == "/who"
        assert len(check({"who": "a", "list": [{}] * 1000})) == MAX_PROBLEMS

    def test_rendering_refuses_what_the_check_refuses(self, book):
        library = book("{{ who }}", schema=SCHEMA, sample={"who": "a"})
        problem = refusal(library.render_html, "mine", {})
        assert "variables/who is missing" in str(problem)
        assert problem.details["problems"][0]["path"] == "/who"

    def test_a_schema_fetches_nothing(self, book):
        away = {"properties": {"a": {"$ref": "http://localhost:9/schema.json"}}}
        library = book("x", schema=away)
        assert "refers to another schema, which is missing" in str(refusal(library.find_problems, "mine", {"a": 1}))


class TestRendering:
    NASTY = "A & B <c> \"q\" 'x' ğüşıöç İ ₺"

    def test_values_are_escaped_once_in_a_page_that_may_load_nothing(self, library_of):
        cases: list[tuple[str, dict[str, object], str]] = [
            ("{{ x }}", {"x": self.NASTY}, "A &amp; B &lt;c&gt; &#34;q&#34; &#39;x&#39; ğüşıöç İ ₺"),
            ("{{ y[0] }}", {"y": ["&amp;"]}, "&amp;amp;"),
            ("{{ 'a' if fonts == 'x' else 'b' }}", {"fonts": "x"}, "b"),  # a variable hides no name of ours
            ("{{ x.items }} {{ x.values }}", {"x": {"items": 1, "values": 2}}, "1 2"),  # nor is it hidden
            ("{{ x }}", {"x": "a\ud800b"}, "a?b"),
        ]
        library = library_of([body for body, _, _ in cases])
        policy = f'<meta http-equiv="Content-Security-Policy" content="{LIBRARY_CSP}">'
        for number, (body, variables, text) in enumerate(cases):
            page = library.render_html(f"t{number}", variables)
            assert page.startswith(f'<html><head><meta charset="utf-8">{policy}')
            assert page.endswith(f"<body>{text}</body></html>"), body

    def test_a_page_needs_a_head_for_that(self, book):
        with pytest.raises(RenderFailed, match="no <head>"):
            book("<p>{{ x }}", whole=True).render_html("mine", {"x": "<head>"})

    def test_the_language_is_turkish_unless_it_is_named(self, book):
        library = book("{{ lang }} {{ 1.5 | number }} {{ t.hi }}", texts__json='{"tr": {"hi": "Selam"}}')
        assert "tr 1,5 Selam" in library.render_html("mine", {})
        assert "en 1.5 Selam" in library.render_html("mine", {"lang": "en"})
        with pytest.raises(RenderFailed, match="language"):
            library.render_html("mine", {"lang": '"><script>'})

    def test_pictures_come_from_its_own_folder(self, book):
        library = book("{{ asset(x) }}", logo__png="abc")
        assert "data:image/png;base64,YWJj" in library.render_html("mine", {"x": "logo.png"})
        for other in ("schema.json", "../mine/logo.png", "/etc/passwd", "none.png"):
            with pytest.raises(RenderFailed, match="expected the name of a picture"):
                library.render_html("mine", {"x": other})

    def test_errors_have_name_and_line_and_no_value(self, library_of):
        cases = {
            "\n{{ missing }}": "line 2: 'missing' is missing",
            "{{ x.nothing }}": "line 1: 'nothing' is missing",
            "{{ x[secret] }}": "line 1: a variable is missing",
            "{% for a in missing %}{% endfor %}": "'missing' is missing",
            "{{ x }}": "expected a text or a number, not dict",
            "{{ x.no }}": "not NoneType",
            "{{ x.keys }}": "not builtin_function_or_method",
            "\n\n{{ secret | money }}": "line 3: expected a number",
            "{{ 1 / 0 }}": "ZeroDivisionError",
            "{{ secret + 1 }}": "TypeError",
            "{% include 'other.html' %}": "includes a file that does not exist",
            "{% include secret %}": "includes a file that does not exist",
            "{% include 't12/template.html' %}": "includes itself endlessly",
        }
        library = library_of(cases)
        variables = {"x": {"a": 1, "no": None}, "secret": "Ayse0532"}
        for number, (body, reason) in enumerate(cases.items()):
            problem = refusal(library.render_html, f"t{number}", variables)
            assert problem.code == "TEMPLATE_ERROR", body
            assert problem.details["template"] == f"t{number}/template.html", body
            assert reason in problem.message, body
            assert "Ayse0532" not in f"{problem} {problem.details}", body
            assert problem.__cause__ is None, body
            assert problem.__suppress_context__, body

    def test_an_excerpt_shows_long_lines_and_marks_what_it_leaves_out(self, library_of):
        bodies = ("<b>" * 100 + "{{ no }}", "\n{{ no }}" + "x" * 600)
        library = library_of(bodies)
        whole, cut = (refusal(library.render_html, f"t{at}", {}).details["excerpt"] for at in range(2))
        assert bodies[0] in whole
        assert "…" not in whole
        [marked] = [line for line in cut.split("\n") if line.startswith(">")]
        assert marked == f">    2  {{{{ no }}}}{'x' * 492}…"

    def test_a_misspelt_variable_is_missing_before_any_filter(self, library_of):
        filters = ("money", "date", "round(2)", "tojson", "qr", "upper_tr", "money(sign=z)", "abs")
        library = library_of([f"{{{{ x.nothing | {name} }}}}" for name in filters])
        for number, name in enumerate(filters):
            problem = refusal(library.render_html, f"t{number}", {"x": {}})
            assert problem.message.endswith("line 1: 'nothing' is missing"), name
        book = library_of(["{{ 5 | money(x.sign) }}{{ x.no | default(x.sign) }}"])
        with pytest.raises(RenderFailed, match="'sign' is missing"):
            book.render_html("t0", {"x": {}})
        assert ">-<" in library_of([">{{ x.no | default('-') }}<"]).render_html("t0", {"x": {}})

    def test_another_templates_files_and_partials_can_be_included(self, folder):
        write(folder, "mine", PAGE.format("{% include 'partials/a.html' %}"))
        (folder / "partials").mkdir()
        (folder / "partials" / "a.html").write_text("\n{{ x }}", "utf-8")
        book = TemplateLibrary.load([folder])
        assert "<body>\n5" in book.render_html("mine", {"x": 5})
        with pytest.raises(RenderFailed, match=r"partials/a\.html, line 2: 'x' is missing"):
            book.render_html("mine", {})


class TestSandbox:
    def test_there_is_no_way_out(self, library_of):
        bodies = [
            "{{ ''.__class__ }}", "{{ ''.__class__.__mro__[1].__subclasses__() }}",
            "{{ x.__init__.__globals__ }}", "{{ x['__class__'].__base__ }}",
            "{{ (x | attr('__class__')).__mro__ }}", "{{ '{0.__class__.__mro__}'.format(x) }}",
            "{{ self.__init__.__globals__ }}", "{{ asset.__globals__ }}", "{{ asset.__closure__ }}",
            "{{ invoice_sums.__globals__['__builtins__'] }}", "{{ x.append(1) }}",
            "{{ y.update({'a': 1}) }}", "{{ range.__init__ }}", "{{ cycler.__init__ }}",
            "{{ lipsum.__globals__ }}", "{{ namespace.__init__.__globals__ }}",
            "{% set n = namespace() %}{{ n.__class__ }}", "{{ fonts.__class__ }}",
            "{{ fonts.unescape.__globals__ }}",
        ]  # fmt: skip
        library = library_of(bodies)
        for number, body in enumerate(bodies):
            problem = refusal(library.render_html, f"t{number}", {"x": [1], "y": {}})
            assert problem.code == "TEMPLATE_ERROR", body

    def test_bombs_do_not_go_off_and_sums_still_work(self, library_of):
        bombs = [
            "{% for i in range(10000000) %}{% endfor %}", "{{ 'a' * 100000000 }}",
            "{{ 100000000 * 'a' }}", "{{ ([1] * 100000000) | length }}", "{{ 9 ** 9 ** 9 }}",
            "{{ x ** 99999999 }}",
        ]  # fmt: skip
        library = library_of([*bombs, "{{ 2 * 3 }} {{ 2 ** 3 }} {{ 'ab' * 3 }}"])
        for number, body in enumerate(bombs):
            problem = refusal(library.render_html, f"t{number}", {"x": 7})
            assert "a loop or number in it is too large" in str(problem), body
        assert "6 8 ababab" in library.render_html(f"t{len(bombs)}", {})

    def test_a_page_has_a_largest_size(self, book):
        body = "{% for i in range(99999) %}" + "x" * 100 + "{% endfor %}"
        with pytest.raises(RenderFailed, match=f"larger than {MAX_HTML_BYTES}"):
            book(body).render_html("mine", {})
