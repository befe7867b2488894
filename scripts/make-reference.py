"""Write the generated documentation: the reference, the limits, and the figures of README.md.

Run it after a change of a command, a path, a setting, an error code or a limit, and after a
benchmark that wrote its page. A test checks that the pages are up to date.
"""

from reference import ROOT, pages

for name, text in pages().items():
    (ROOT / name).write_text(text, "utf-8")
