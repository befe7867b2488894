"""Forms as browsers send them: read here, bounded in bytes and in fields."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import Request

from kesin.foundation.problems import TooLarge


async def read_form(request: Request, *, most_bytes: int, most_fields: int) -> dict[str, list[str]]:
    """The fields, each as often as it came; raises TooLarge."""
    body = await request.body()
    if len(body) > most_bytes:
        raise TooLarge(f"a form holds at most {most_bytes} bytes")
    try:
        return parse_qs(
            body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=most_fields
        )
    except ValueError:
        raise TooLarge(f"a form holds at most {most_fields} fields") from None


def firsts(fields: dict[str, list[str]]) -> dict[str, str]:
    """Each field once."""
    return {name: values[0] for name, values in fields.items()}
