"""Passwords are hashed with the cheapest parameters: the product's take a tenth of a second."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from argon2 import PasswordHasher

from kesin.foundation import passwords

CHEAPEST = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@contextmanager
def quick_hashes() -> Iterator[None]:
    """Within the block, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_hasher", lambda: CHEAPEST)
        passwords.unmatched_hash.cache_clear()
        yield
    passwords.unmatched_hash.cache_clear()
