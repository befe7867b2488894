"""Write what is generated in the documentation: the reference, and the figures of README.md.

Run it after a change of a command, a path, a setting or an error code, and after a benchmark that
wrote its page; a test compares.
"""

from reference import ROOT, pages

for name, text in pages().items():
    (ROOT / name).write_text(text, "utf-8")
