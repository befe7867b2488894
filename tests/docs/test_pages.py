"""The reader of pages is no pushover: what it lets pass is what it should."""

import pytest

from tests.docs.pages import anchors, blocks, links, matches


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("done 2\n", "done 2\n"),
        ("took … s\n", "took 0.31 s\n"),
        ("first\n…\nlast\n", "first\none\ntwo\nlast\n"),
        ("first\n…\nlast\n", "first\nlast\n"),
        ("padded\n", "padded   \n"),
    ],
)
def test_output_like_the_page_matches(shown, printed):
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("done 2\n", "done 3\n"),
        ("done 2\n", "done 2\nfailed 1\n"),
        ("done 2\nfailed 1\n", "done 2\n"),
        ("took … s\n", "took 0.31 s\nand failed\n"),
        ("done.\n", "done!\n"),
    ],
)
def test_other_output_does_not(shown, printed):
    assert not matches(shown, printed)


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
