import json
import shutil

import pytest
from markupsafe import Markup

from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.errors import RenderFailed
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
    """A book of one template with this body, any variables allowed."""

    def made(body, *, schema=OPEN, sample=None, whole=False, **files):
        write(folder, "mine", body if whole else PAGE.format(body), schema, sample or {}, **files)
        return TemplateLibrary.load([folder])

    return made


def write(folder, name, page, schema=OPEN, sample=None, **files):
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "template.html").write_text(page, "utf-8")
    (place / "schema.json").write_text(json.dumps(schema), "utf-8")
    (place / "sample.json").write_text(json.dumps(sample or {}), "utf-8")
    for file, data in files.items():
        (place / file.replace("__", ".")).write_text(data, "utf-8")
    return place


class TestLoading:
    def test_the_shipped_templates_are_there(self):
        assert TemplateLibrary.load().names == ("conversion_report", "cutting_plan", "invoice")

    def test_own_folders_are_added_and_win(self, folder):
        write(folder, "invoice", PAGE.format("mine"))
        write(folder, "letter", PAGE.format("x"))
        book = TemplateLibrary.load([SHIPPED, folder])
        assert "letter" in book
        assert "mine" in book.render_html("invoice", {})

    @pytest.mark.parametrize("name", ["Bad", "a b", "-a", "_a", "a" * 65, "ş"])
    def test_a_name_is_plain(self, folder, name):
        write(folder, name, PAGE.format("x"))
        with pytest.raises(RenderFailed, match="a name has"):
            TemplateLibrary.load([folder])

    def test_folders_without_a_template_are_left_alone(self, folder):
        write(folder, "mine", PAGE.format("x"))
        (folder / "Some Drafts").mkdir()
        assert TemplateLibrary.load([folder]).names == ("mine",)

    @pytest.mark.parametrize("file", ["schema.json", "sample.json"])
    def test_schema_and_sample_belong_to_a_template(self, folder, file):
        (write(folder, "mine", PAGE.format("x")) / file).unlink()
        with pytest.raises(RenderFailed, match=rf"template mine: {file} is missing"):
            TemplateLibrary.load([folder])

    def test_a_sample_must_keep_to_its_schema(self, folder):
        schema = {"type": "object", "required": ["a"]}
        write(folder, "mine", PAGE.format("x"), schema)
        with pytest.raises(RenderFailed, match=r"sample\.json: /a is missing"):
            TemplateLibrary.load([folder])

    def test_a_schema_must_be_one(self, folder):
        write(folder, "mine", PAGE.format("x"), {"type": "text"})
        with pytest.raises(RenderFailed, match=r"schema\.json is no schema"):
            TemplateLibrary.load([folder])

    def test_json_must_be_json(self, folder):
        (write(folder, "mine", PAGE.format("x")) / "sample.json").write_text("{", "utf-8")
        with pytest.raises(RenderFailed, match=r"sample\.json is no JSON"):
            TemplateLibrary.load([folder])

    def test_a_template_must_be_one(self, book):
        with pytest.raises(RenderFailed, match=r"mine/template\.html, line 2: it is no template"):
            book("\n{% if %}")

    def test_a_folder_must_be_there(self, folder):
        with pytest.raises(RenderFailed, match="there is no such folder"):
            TemplateLibrary.load([folder])

    @pytest.mark.parametrize(
        "body",
        [
            "{{ x | safe }}",
            "{% autoescape false %}{{ x }}{% endautoescape %}",
            "{% if false %}{% autoescape x %}{% endautoescape %}{% endif %}",
        ],
    )
    def test_escaping_cannot_be_turned_off(self, book, body):
        with pytest.raises(RenderFailed):
            book(body)

    def test_an_unknown_name_is_a_template_error_that_does_not_repeat_it(self, book):
        for ask in (book("x").render_html, book("x").find_problems):
            with pytest.raises(RenderFailed) as failed:
                ask("../../etc/passwd", {})
            assert failed.value.code == "TEMPLATE_ERROR"
            assert "passwd" not in str(failed.value)


class TestHash:
    def hashes(self, folder):
        book = TemplateLibrary.load([folder])
        return {name: book.get(name).content_hash for name in book.names}

    @pytest.fixture
    def copied(self, folder):
        shutil.copytree(SHIPPED, folder)
        return folder

    def test_the_same_files_have_the_same_hash_wherever_they_lie(self, copied):
        assert self.hashes(copied) == self.hashes(SHIPPED)

    @pytest.mark.parametrize("file", ["template.html", "schema.json", "sample.json", "texts.json"])
    def test_any_file_of_a_template_changes_its_hash_and_no_other(self, copied, file):
        before = self.hashes(copied)
        path = copied / "invoice" / file
        path.write_bytes(path.read_bytes() + b"\n")
        after = self.hashes(copied)
        assert {name for name in after if after[name] != before[name]} == {"invoice"}

    def test_a_new_file_changes_it_too_and_so_does_its_name(self, copied):
        before = self.hashes(copied)["invoice"]
        (copied / "invoice" / "a.png").write_bytes(b"x")
        added = self.hashes(copied)["invoice"]
        (copied / "invoice" / "a.png").rename(copied / "invoice" / "b.png")
        assert len({before, added, self.hashes(copied)["invoice"]}) == 3

    @pytest.mark.parametrize("file", ["fonts/sans-bold.woff2", "partials/sheet.css"])
    def test_what_is_shared_changes_all(self, copied, file):
        before = self.hashes(copied)
        (copied / file).write_bytes((copied / file).read_bytes() + b"\n")
        after = self.hashes(copied)
        assert all(after[name] != before[name] for name in before)


class TestChecking:
    @pytest.fixture
    def check(self, book):
        made = book("x", schema=SCHEMA, sample={"who": "a"})

        def checked(variables):
            return [
                (problem.path, problem.message) for problem in made.find_problems("mine", variables)
            ]

        return checked

    def test_what_fits_has_no_problems(self, check):
        good = {"who": "şı", "on": "2026-11-15", "at": "2026-11-15T09:00:00+03:00",
                "iban": "TR33 0006 1005 1978 6457 8413 26", "list": [{"n": 1}]}  # fmt: skip
        assert check(good) == []

    def test_every_problem_has_its_path_in_order(self, check):
        rows = [{"n": 1}, {"n": 0}, {}] + [{"n": 1}] * 8 + [{"n": "x"}]
        assert check({"on": "2026-02-30", "list": rows, "a/b": 1}) == [
            ("/a~1b", "is not known"),
            ("/list/1/n", "must be at least 1"),
            ("/list/2/n", "is missing"),
            ("/list/11/n", "must be integer"),
            ("/on", "must be a valid date"),
            ("/who", "is missing"),
        ]

    @pytest.mark.parametrize(
        ("field", "value"),
        [("on", "20261115"), ("on", "15.11.2026"), ("at", "2026-11-15"), ("at", "noon"),
         ("iban", "TR330006100519786457841327"), ("iban", "TR33"), ("who", "long"), ("who", 1)],
    )  # fmt: skip
    def test_values_are_checked_and_never_repeated(self, check, field, value):
        problems = check({"who": "a", field: value})
        assert [path for path, _ in problems] == [f"/{field}"]
        assert str(value) not in str(problems[0][1]) or value == 1

    def test_numbers_are_no_booleans(self, check):
        assert check({"who": "a", "list": [{"n": True}]}) == [("/list/0/n", "must be integer")]

    def test_depth_and_odd_numbers_are_problems_too(self, check):
        deep: list = []
        for _ in range(40):
            deep = [deep]
        assert "nested deeper" in check({"who": deep})[0][1]
        assert check({"who": float("nan")})[0][0] == "/who"

    def test_problems_are_limited(self, check):
        assert len(check({"who": "a", "list": [{}] * 1000})) == MAX_PROBLEMS

    def test_html_refuses_what_check_refuses(self, book):
        made = book("{{ who }}", schema=SCHEMA, sample={"who": "a"})
        with pytest.raises(RenderFailed, match="variables/who is missing") as failed:
            made.render_html("mine", {})
        assert failed.value.details["problems"][0]["path"] == "/who"

    def test_a_schema_fetches_nothing(self, book):
        away = {"properties": {"a": {"$ref": "http://localhost:9/schema.json"}}}
        made = book("x", schema=away)
        with pytest.raises(RenderFailed, match="refers to another"):
            made.find_problems("mine", {"a": 1})


class TestRendering:
    NASTY = "A & B <c> \"q\" 'x' ğüşıöç İ ₺"

    def test_values_are_escaped_once(self, book):
        page = book("{{ x }}|{{ y[0] }}").render_html("mine", {"x": self.NASTY, "y": ["&amp;"]})
        assert "A &amp; B &lt;c&gt; &#34;q&#34; &#39;x&#39; ğüşıöç İ ₺|&amp;amp;" in page

    def test_markup_among_the_variables_is_the_callers_word(self, book):
        assert "<i>" in book("{{ x }}").render_html("mine", {"x": Markup("<i>")})

    def test_the_page_may_load_nothing(self, book):
        page = book("x").render_html("mine", {})
        assert page.startswith(
            f'<html><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{LIBRARY_CSP}">'
        )

    def test_a_page_needs_a_head_for_that(self, book):
        with pytest.raises(RenderFailed, match="no <head>"):
            book("<p>{{ x }}", whole=True).render_html("mine", {"x": "<head>"})

    def test_the_language_is_turkish_unless_it_is_named(self, book):
        made = book(
            "{{ lang }} {{ 1.5 | number }} {{ t.hi }}", texts__json='{"tr": {"hi": "Selam"}}'
        )
        assert "tr 1,5 Selam" in made.render_html("mine", {})
        assert "en 1.5 Selam" in made.render_html("mine", {"lang": "en"})
        with pytest.raises(RenderFailed, match="language"):
            made.render_html("mine", {"lang": '"><script>'})

    def test_pictures_come_from_its_own_folder(self, book):
        made = book("{{ asset(x) }}", logo__png="abc")
        assert "data:image/png;base64,YWJj" in made.render_html("mine", {"x": "logo.png"})
        for other in ("schema.json", "../mine/logo.png", "/etc/passwd", "none.png"):
            with pytest.raises(RenderFailed, match="expected the name of a picture"):
                made.render_html("mine", {"x": other})

    def test_variables_do_not_take_the_place_of_what_we_hand_out(self, book):
        page = book("{{ 'a' if fonts == 'x' else 'b' }}").render_html("mine", {"fonts": "x"})
        assert "<body>b" in page

    def test_names_in_json_come_before_methods(self, book):
        made = book("{{ x.items }} {{ x.values }}")
        assert "1 2" in made.render_html("mine", {"x": {"items": 1, "values": 2}})

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ("\n{{ missing }}", "line 2: 'missing' is missing"),
            ("{{ x.nothing }}", "line 1: 'nothing' is missing"),
            ("{{ x[secret] }}", "line 1: a variable is missing"),
            ("{% for a in missing %}{% endfor %}", "'missing' is missing"),
            ("{{ x }}", "expected a text or a number, not dict"),
            ("{{ x.no }}", "not NoneType"),
            ("{{ x.keys }}", "not builtin_function_or_method"),
            ("\n\n{{ secret | money }}", "line 3: expected a number"),
            ("{{ 1 / 0 }}", "ZeroDivisionError"),
            ("{{ secret + 1 }}", "TypeError"),
            ("{% include 'other.html' %}", "includes a file that is not there"),
            ("{% include secret %}", "includes a file that is not there"),
            ("{% include 'mine/template.html' %}", "includes itself without end"),
        ],
    )
    def test_errors_tell_name_and_line_and_no_value(self, book, body, why):
        with pytest.raises(RenderFailed) as failed:
            book(body).render_html("mine", {"x": {"a": 1, "no": None}, "secret": "Ayse0532"})
        assert failed.value.code == "TEMPLATE_ERROR"
        assert failed.value.details["template"] == "mine/template.html"
        assert why in failed.value.message
        assert "Ayse0532" not in f"{failed.value} {failed.value.details}"
        assert failed.value.__cause__ is None
        assert failed.value.__suppress_context__

    def test_another_templates_files_and_partials_can_be_included(self, folder):
        write(folder, "mine", PAGE.format("{% include 'partials/a.html' %}"))
        (folder / "partials").mkdir()
        (folder / "partials" / "a.html").write_text("\n{{ x }}", "utf-8")
        book = TemplateLibrary.load([folder])
        assert "<body>\n5" in book.render_html("mine", {"x": 5})
        with pytest.raises(RenderFailed, match=r"partials/a\.html, line 2: 'x' is missing"):
            book.render_html("mine", {})

    def test_lone_surrogates_do_not_break_the_page(self, book):
        assert "a?b" in book("{{ x }}").render_html("mine", {"x": "a\ud800b"})


class TestSandbox:
    @pytest.mark.parametrize(
        "body",
        [
            "{{ ''.__class__ }}",
            "{{ ''.__class__.__mro__[1].__subclasses__() }}",
            "{{ x.__init__.__globals__ }}",
            "{{ x['__class__'].__base__ }}",
            "{{ (x | attr('__class__')).__mro__ }}",
            "{{ '{0.__class__.__mro__}'.format(x) }}",
            "{{ self.__init__.__globals__ }}",
            "{{ asset.__globals__ }}",
            "{{ asset.__closure__ }}",
            "{{ invoice_sums.__globals__['__builtins__'] }}",
            "{{ x.append(1) }}",
            "{{ y.update({'a': 1}) }}",
            "{{ range.__init__ }}",
            "{{ cycler.__init__ }}",
            "{{ lipsum.__globals__ }}",
            "{{ namespace.__init__.__globals__ }}",
            "{% set n = namespace() %}{{ n.__class__ }}",
            "{{ fonts.__class__ }}",
            "{{ fonts.unescape.__globals__ }}",
        ],
    )
    def test_there_is_no_way_out(self, book, body):
        with pytest.raises(RenderFailed) as failed:
            book(body).render_html("mine", {"x": [1], "y": {}})
        assert failed.value.code == "TEMPLATE_ERROR"

    @pytest.mark.parametrize(
        "body",
        [
            "{% for i in range(10000000) %}{% endfor %}",
            "{{ 'a' * 100000000 }}",
            "{{ 100000000 * 'a' }}",
            "{{ ([1] * 100000000) | length }}",
            "{{ 9 ** 9 ** 9 }}",
            "{{ x ** 99999999 }}",
        ],
    )
    def test_bombs_do_not_go_off(self, book, body):
        with pytest.raises(RenderFailed, match="counts too far"):
            book(body).render_html("mine", {"x": 7})

    def test_sums_still_work(self, book):
        assert "6 8 ababab" in book("{{ 2 * 3 }} {{ 2 ** 3 }} {{ 'ab' * 3 }}").render_html(
            "mine", {}
        )

    def test_a_page_has_a_largest_size(self, book):
        body = "{% for i in range(99999) %}" + "x" * 100 + "{% endfor %}"
        with pytest.raises(RenderFailed, match=f"larger than {MAX_HTML_BYTES}"):
            book(body).render_html("mine", {})
