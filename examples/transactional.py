"""Several calls in one transaction: all take effect, or none does."""

from kesin import BadInput, Queue, Worker, open_store, task_lifecycle

store = open_store(":memory:")
orders = Queue("orders", task_lifecycle("order"), store)
invoices = Queue("invoices", task_lifecycle("invoice"), store)


def order_with_invoice(number: int, amount: float) -> str:
    """Enqueue both, or neither."""
    with store.transaction():
        order = orders.enqueue({"order": number})
        invoices.enqueue({"order": number, "amount": amount})
    return order.id


try:
    order_with_invoice(1, float("nan"))  # the order is valid, but its invoice is not JSON
except BadInput as refused:
    print(f"{refused.field}: {refused.code}")
print(f"after the failure: {orders.stats().total} orders, {invoices.stats().total} invoices")

order = order_with_invoice(1, 120.5)
print(f"after the commit: {orders.stats().total} order, {invoices.stats().total} invoice")

# The same for moves: cancel an order and enqueue its replacement, or do neither.
with store.transaction():
    cancelled = orders.act("cancel", actor="ayse", ids=[order], reason="wrong address")
    orders.enqueue({"order": 2, "instead_of": order})
print(f"cancelled {cancelled.moved}; orders by state: {orders.stats().states}")

Worker(orders, lambda job: print("packing order", job.payload["order"])).drain()
