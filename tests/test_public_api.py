"""The public names: `kesin` exports them, and the guides and examples import nothing else."""

import ast
import builtins
import keyword
import pkgutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import kesin
from tests.docs.pages import PAGES, ROOT, blocks

EXAMPLES = ROOT / "examples"
# The tutorial makes a workload's context by hand; the service makes it otherwise.
PRIVATE = {"docs/tutorial.md": {"Accounts", "Commands", "Directory"}}
HELP = """
import sys
from contextlib import suppress
from kesin.cli import main

sys.argv = ["kesin", "--help"]
with suppress(SystemExit):
    main()
print("imported:", *sorted(sys.modules))
"""


def declared() -> dict[str, list[str]]:
    """The names that type checkers read, by module."""
    tree = ast.parse(Path(kesin.__file__).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert len(imports) == len(block.body)
    return {str(node.module): [alias.name for alias in node.names] for node in imports}


def sources() -> Iterator[tuple[str, str]]:
    """The Python code of guides and examples, and the file it is in."""
    for path in sorted(EXAMPLES.rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text("utf-8")
    for page in [*PAGES, ROOT / "README.md"]:
        for block in blocks(page):
            if block.language == "python" and page.parent.name != "reference":  # signatures
                yield str(page.relative_to(ROOT)), block.text


def deep_imports(text: str) -> Iterator[tuple[str, str]]:
    """Each name that the code imports from a module inside `kesin`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kesin."):
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((one.name, "") for one in node.names if one.name.startswith("kesin."))


def test_type_checkers_and_the_lazy_table_see_the_same_names():
    assert declared() == {home: list(names) for home, names in kesin._MODULES.items()}


def test_every_name_is_listed_once():
    homes = Counter(name for names in kesin._MODULES.values() for name in names)
    assert [name for name, count in homes.items() if count > 1] == []
    assert Counter(kesin.__all__) == homes


@pytest.mark.parametrize("name", kesin.__all__)
def test_the_name_is_the_one_of_its_module(name):
    value = getattr(kesin, name)
    (home,) = (home for home, names in kesin._MODULES.items() if name in names)
    assert value is getattr(sys.modules[home], name)


def test_no_name_hides_a_module_or_a_word_of_python():
    modules = {module.name for module in pkgutil.iter_modules(kesin.__path__)}
    taken = {*modules, *dir(builtins), *keyword.kwlist, *keyword.softkwlist}
    assert taken.isdisjoint(kesin.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'kesin' has no attribute 'nonsense'"):
        _ = kesin.nonsense


def test_the_help_imports_none_of_them():
    done = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, encoding="utf-8", check=True
    )
    *_, last = done.stdout.splitlines()
    imported = last.split()
    assert "kesin.cli" in imported
    assert kesin._MODULES.keys().isdisjoint(imported)


def test_guides_and_examples_import_from_kesin_and_kesin_testing_only():
    """What a workload offers is its own; everything else has a public name."""
    private = [
        (where, module, name)
        for where, text in sources()
        for module, name in deep_imports(text)
        if module != "kesin.testing" and not f"{module}.".startswith("kesin.workloads.")
        if name not in PRIVATE.get(where, ())
    ]
    assert private == []


def test_public_names_are_imported_from_kesin():
    """Also by those who may import from a workload."""
    deep = [
        (where, module, name)
        for where, text in sources()
        for module, name in deep_imports(text)
        if name in kesin.__all__
    ]
    assert deep == []
