"""Every process proves its lifecycles before it works: the walk must stay a short one."""

from kesin.lifecycle.proof.rules import prove
from tests.lifecycle.broken import REAL

MOST_CONFIGURATIONS = 10_000  # measured: 9 557; a second's walk


def test_all_real_lifecycles_together_are_a_short_walk():
    assert sum(prove(lifecycle).configurations for lifecycle in REAL.values()) < MOST_CONFIGURATIONS
