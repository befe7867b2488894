"""Copies written as they are: what they replace, in every store."""

from contextlib import closing

from kesin.store.sqlite.store import SqliteStore
from kesin.store.transfer import copier_for
from tests.store.model.lifecycles import ferry_lifecycle
from tests.store.scene import Scene


def test_whoever_has_the_key_or_the_slot_of_a_copy_is_outdated_and_goes(open_queue):
    """Two of them, maybe: one has the key, another one the slot."""
    with closing(SqliteStore(":memory:")) as other:
        source = Scene(other, "ferry", ferry_lifecycle())
        source.clock.advance(1)  # ids of its own
        crossing = source.running(key="k", tenant="a")
        [copy] = copier_for(other, "ferry").histories("ferry", [crossing.id])
        flows = other.flows("ferry")
    ferry = open_queue(ferry_lifecycle())
    ferry.running(key="another", tenant="a")
    ferry.one(key="k", tenant="a")
    copier = copier_for(ferry.store, "ferry")
    copier.put("ferry", [copy])
    assert copier.put_flows("ferry", flows, instead_of=sorted(ferry.store.flows("ferry")))
    assert ferry.all() == {crossing.id: crossing}
    assert ferry.store.holders("ferry", "a", ["k", "another"]) == {"k": crossing.id}
    ferry.one(key="later")
    assert ferry.claim() == []
