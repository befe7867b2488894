"""Submitted forms, bounded in bytes and fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from kesin.foundation.problems import TooLarge
from kesin.web.bodies import is_large


async def read_form(request: Request, *, max_bytes: int, max_fields: int) -> dict[str, list[str]]:
    """The fields with all their values; raises TooLarge."""
    body = await request.body()
    if len(body) > max_bytes:
        raise TooLarge("a form holds at most %(most)s bytes", most=max_bytes)
    if is_large(body):
        return await run_in_threadpool(_parse_fields, body, max_fields)
    return _parse_fields(body, max_fields)


def _parse_fields(body: bytes, max_fields: int) -> dict[str, list[str]]:
    try:
        return parse_qs(
            body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=max_fields
        )
    except ValueError:
        raise TooLarge("a form holds at most %(most)s fields", most=max_fields) from None


def first_value(fields: Mapping[str, Sequence[str]], name: str) -> str:
    """The first value of a field, stripped; empty if it was not sent."""
    return next(iter(fields.get(name, ())), "").strip()


def first_values(fields: dict[str, list[str]]) -> dict[str, str]:
    """The first value of each field."""
    return {name: values[0] for name, values in fields.items()}
