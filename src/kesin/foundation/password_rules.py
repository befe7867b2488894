"""Which passwords are refused because they are guessed first."""

import re
from itertools import pairwise
from typing import Final

from kesin.foundation.passwords import MIN_PASSWORD_LENGTH, check_length
from kesin.foundation.problems import Invalid

MIN_DIFFERENT: Final = 5  # characters
MAX_RUNS: Final = 3  # "abcde12345" has two
_REPEATED: Final = re.compile(r"(.+?)\1+", re.DOTALL)
_NO_LETTERS: Final = re.compile(r"[\W\d_]+")
# Neighbours on a keyboard, row by row and (1qaz2wsx) column by column.
_NEIGHBOURS: Final = frozenset(
    pair
    for line in (
        *("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm", "qwertyuıopğü", "asdfghjklşi"),
        *("azertyuiop", "qsdfghjklm", "1qaz2wsx3edc4rfv5tgb6yhn7ujm", "1q2w3e4r5t6y7u8i9o0p"),
        "q1w2e3r4t5y6u7i8o9p0",
    )
    for pair in pairwise(line)
)
# The commonest words that people write in front of or behind a few digits.
_COMMON_WORDS: Final = """
    abc abcd abcdef access admin administrator adminadmin asd asdf asdfgh azerty baseball batman
    besiktas changeit changeme computer default demo dragon fenerbahce football galatasaray guest
    hello helloworld iloveyou istanbul kesin letmein login master monkey operator parola pass passw
    passwd password passwort princess qaz qazwsx qwe qwer qwert qwerty qwertyuiop root secret
    seniseviyorum shadow sifre şifre sunshine superman system temp temporary test testing
    trabzonspor trustno turkiye türkiye user viewer welcome whatever zxc zxcvbn zxcvbnm
"""
_COMMON: Final = frozenset(_COMMON_WORDS.split())


def check_password(password: str, user_name: str) -> None:
    """Raise Invalid for a password that is too short, too long or easy to guess."""
    check_length(password)
    folded, name = password.casefold(), user_name.casefold()
    if len(set(folded)) < MIN_DIFFERENT or _REPEATED.fullmatch(folded):
        raise _easy("this password repeats a few characters: choose one that is hard to guess")
    if _runs(folded) <= MAX_RUNS:
        raise _easy("this password is a row of neighbours: choose one that is hard to guess")
    if name and name in folded and len(folded.replace(name, "")) < MIN_PASSWORD_LENGTH:
        raise _easy("this password is little more than the name: choose one that is hard to guess")
    if _NO_LETTERS.sub("", folded) in _COMMON:
        raise _easy("this password is one of the commonest: choose one that is hard to guess")


def _runs(text: str) -> int:
    """How many runs of neighbours the text consists of, such as ``abc``, ``321`` or ``asd``."""
    pairs = [(one, other) for one, other in pairwise(text) if abs(ord(one) - ord(other)) > 1]
    return 1 + sum(pair not in _NEIGHBOURS and pair[::-1] not in _NEIGHBOURS for pair in pairs)


def _easy(message: str) -> Invalid:
    return Invalid(message, code="easy_password", details={"field": "password"})
