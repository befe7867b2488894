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
        crossing = source.claim_new_job(key="k", tenant="a")
        [copy] = copier_for(other, "ferry").histories("ferry", [crossing.id])
        flows = other.move_counts("ferry")
    ferry = open_queue(ferry_lifecycle())
    ferry.claim_new_job(key="another", tenant="a")
    ferry.create_job(key="k", tenant="a")
    copier = copier_for(ferry.store, "ferry")
    copier.put("ferry", [copy])
    assert copier.replace_move_counts("ferry", flows, expected=sorted(ferry.store.move_counts("ferry")))
    assert ferry.all() == {crossing.id: crossing}
    assert ferry.store.ids_by_key("ferry", "a", ["k", "another"]) == {"k": crossing.id}
    ferry.create_job(key="later")
    assert ferry.claim() == []
