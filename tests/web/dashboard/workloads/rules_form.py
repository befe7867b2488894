"""The form of the workshop's rules, as a browser sends it."""

import html
import re


def hidden(page: str) -> dict[str, str]:
    """What the first form of a page would send, as a browser does."""
    found = {}
    form = page[page.index('id="rules-form"') :].partition("</form>")[0]
    for tag in re.findall(r"<input[^>]+>", form):
        marked = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        found[html.unescape(marked["name"])] = html.unescape(marked["value"])
    for name, inside in re.findall(r'<select id="[^"]+" name="([^"]+)"[^>]*>(.*?)</select>', form, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)" selected>', inside)
        found[name] = chosen[1] if chosen else ""
    return found
