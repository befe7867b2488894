"""How many jobs match a filter, of those that an actor may see."""

from kesin.engine.access.commands import Commands
from kesin.foundation.permissions import Actor
from kesin.store.filters import normalise_filter
from kesin.store.limits import FIRST_ID, LAST_ID
from kesin.store.records import Filter, JobCount


def count_visible(
    commands: Commands,
    actor: Actor,
    name: str,
    where: Filter,
    *,
    limit: int,
    above: str = FIRST_ID,
    below: str = LAST_ID,
) -> JobCount:
    """The matching jobs between two ids; at most ``limit`` jobs are examined.

    A search in what is masked is not counted: the number would tell what is masked.
    """
    queue, narrowed = commands.queue(actor, name), commands.narrow(actor, name, where)
    searched = where.text or where.contains or where.dedup_key or where.search
    if searched and not actor.has("reveal"):
        return JobCount(0, exact=False)
    return queue.store.count_matching(
        name, normalise_filter(narrowed), limit=limit, above=above, below=below
    )
