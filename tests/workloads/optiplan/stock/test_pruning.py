"""How long the rack remembers what is no longer in it."""

from kesin.workloads.optiplan.files import delete_expired_files
from kesin.workloads.optiplan.lifecycle import OptiplanLimits
from kesin.workloads.optiplan.stock.rack import Rack
from tests.workloads.optiplan.floor import DAY
from tests.workloads.optiplan.stock.racks import put_offcut, stored_states
from tests.workloads.optiplan.workbench import Workbench

KEPT_DAYS = OptiplanLimits().keep_done_days


def test_used_and_scrapped_offcuts_are_kept_as_long_as_orders_and_those_in_the_rack_always(bench: Workbench):
    rack, [used, scrapped, free] = Rack(bench.queue), [put_offcut(bench.queue, name) for name in "abc"]
    rack.update(rack.get(used), state="USED")
    bench.clock.advance(DAY)
    rack.update(rack.get(scrapped), state="SCRAPPED")
    bench.clock.advance((KEPT_DAYS - 1) * DAY + 1)
    delete_expired_files(bench.orders.context)
    assert stored_states(bench.queue) == {scrapped: "SCRAPPED", free: "FREE"}
    bench.clock.advance(DAY)
    delete_expired_files(bench.orders.context)
    assert stored_states(bench.queue) == {free: "FREE"}


def test_an_offcut_of_an_order_that_is_not_settled_is_remembered_so_that_it_is_not_made_again(bench: Workbench):
    rack, used = Rack(bench.queue), put_offcut(bench.queue, "a", made_by_job="unsettled")
    rack.update(rack.get(used), state="USED")
    rack.keep_order("unsettled", [])
    bench.clock.advance((KEPT_DAYS + 1) * DAY)
    delete_expired_files(bench.orders.context)
    assert stored_states(bench.queue) == {used: "USED"}
    rack.drop_order("unsettled")
    delete_expired_files(bench.orders.context)
    assert stored_states(bench.queue) == {}
