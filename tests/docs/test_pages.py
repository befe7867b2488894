"""The reader of pages finds blocks, links and headings, and accepts only matching output."""

from tests.docs.pages import anchors, blocks, links, links_in, matches, recipes


def test_output_matches_what_the_page_shows_and_no_other_does():
    assert matches("done 2\n", "done 2\n")
    assert matches("took … s\n", "took 0.31 s\n")
    assert matches("first\n…\nlast\n", "first\none\ntwo\nlast\n")
    assert matches("first\n…\nlast\n", "first\nlast\n")
    assert matches("padded\n", "padded   \n")
    assert not matches("done 2\n", "done 3\n")
    assert not matches("done 2\n", "done 2\nfailed 1\n")
    assert not matches("done 2\nfailed 1\n", "done 2\n")
    assert not matches("took … s\n", "took 0.31 s\nand failed\n")
    assert not matches("done.\n", "done!\n")


def test_blocks_links_and_anchors_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A Page: `x`\n\n```python\n# [no](link.md)\n```\n\n"
        "[one](other.md#there) ![two](p.svg) `[no](code.md)` [far](https://example.com)\n\n"
        "## Twice\n\n## Twice\n\n## Ne zaman?\n",
        "utf-8",
    )
    (block,) = blocks(page)
    assert (block.language, block.text, block.line) == ("python", "# [no](link.md)\n", 4)
    assert links(page) == ["other.md#there", "p.svg"]
    assert anchors(page) == {"a-page-x", "twice", "twice-1", "ne-zaman"}


def test_a_recipe_is_a_heading_with_its_prose_and_blocks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# How\n\n```sh\nkesin\n```\n\n## Apps\n\n### Wait\n\n"
        "No [more](a.md).\n\n```python\n# x\n```\n\n"
        "```text\n1\n```\n\n### Nothing here\n\nText.\n",
        "utf-8",
    )
    wait, nothing = recipes(page)
    assert (wait.page, wait.heading, wait.prose) == (page, "Wait", "No [more](a.md).")
    assert [(block.language, block.line) for block in wait.blocks] == [("python", 14), ("text", 18)]
    assert links_in(wait.prose) == ["a.md"]
    assert (nothing.heading, nothing.prose, nothing.blocks) == ("Nothing here", "Text.", [])
