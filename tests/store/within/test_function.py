"""The SQL function: enqueueing from any driver, from triggers, from other languages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import psycopg
import psycopg2
import pytest

from kesin import Lifecycle, Move, Queue, State, moves, task_lifecycle, unclaimed
from kesin.foundation.ids import is_id, salt_of
from kesin.store.postgres.store import PostgresStore
from tests.store.conftest import empty

ONE_STEP = "SELECT * FROM {s}.enqueue(%s, %s)"


@pytest.fixture
def queue(postgres_store: PostgresStore) -> Iterator[Queue]:
    yield Queue("mail", task_lifecycle(max_attempts=4), postgres_store)
    empty(postgres_store)


@pytest.fixture
def call(queue: Queue, postgres_store: PostgresStore, postgres_url: str) -> Iterator[Callable[..., tuple[str, str]]]:
    """Calls the function by names, each time in a transaction of its own."""
    schema = postgres_store.schema
    with psycopg.connect(postgres_url) as own:

        def by_name(**given: object) -> tuple[str, str]:
            named = ", ".join(f"{name} => %({name})s" for name in given)
            with own.transaction():
                row = own.execute(f"SELECT result, job_id::text FROM {schema}.enqueue({named})", given).fetchone()
            assert row
            return row[0], row[1]

        yield by_name


def test_it_creates_what_enqueue_creates(queue, call):
    result, job_id = call(queue="mail", payload='{"n":1}', tenant="north", key="k", actor="sql")
    assert (result, is_id(job_id)) == ("inserted", True)
    here = queue.job(job_id)
    other = queue.job(queue.enqueue({"n": 1}, tenant="north", key="other", actor="sql").id)
    own = {"id", "salt", "created_at", "moved_at", "run_at", "dedup_key"}
    assert {k: v for k, v in here._asdict().items() if k not in own} == {
        k: v for k, v in other._asdict().items() if k not in own
    }
    assert here.salt == salt_of(job_id)
    assert abs(here.created_at - other.created_at) < 60_000_000
    assert here.created_at // 1000 == int(job_id.replace("-", "")[:12], 16)
    assert [job.id for job in queue.claim("w", limit=9)] == [here.id, other.id]


def test_a_key_is_held_the_duplicate_noted_and_once_holds_it_after_the_end(queue, call):
    _, first = call(queue="mail", payload="{}", key="k", once=True)
    assert call(queue="mail", payload="{}", key="k", actor="again") == ("duplicate", first)
    assert queue.enqueue({}, key="k").id == first
    assert [note.actor for note in queue.notes(first)] == ["again", "producer"]
    [job] = queue.claim("w")
    queue.move(job, "complete")
    assert call(queue="mail", payload="{}", key="k", once=True) == ("duplicate", first)


def test_it_runs_in_the_callers_transaction_whatever_the_caller_calls_its_own(queue, postgres_url):
    """Neither a table nor a function of the caller's search path comes between."""
    statement = ONE_STEP.format(s=queue.store.schema)
    with closing(psycopg2.connect(postgres_url)) as own, own.cursor() as cursor:
        cursor.execute(statement, ("mail", '{"n":1}'))
        assert cursor.fetchone()[0] == "inserted"
        own.rollback()
        assert queue.stats().total == 0
        cursor.execute("CREATE FUNCTION pg_temp.now_us() RETURNS bigint LANGUAGE sql AS 'SELECT 1'")
        cursor.execute("CREATE TEMP TABLE job_body (id uuid)")
        cursor.execute("SET LOCAL search_path = pg_temp, public")
        cursor.execute(statement, ("mail", '{"n":2}'))
        own.commit()
    assert [job.payload for job in queue.jobs().jobs] == [{"n": 2}]


def test_a_trigger_enqueues_for_each_row(queue, postgres_url):
    schema = queue.store.schema
    with psycopg.connect(postgres_url) as own:
        own.execute("CREATE TEMP TABLE sale (n integer)")
        own.execute(
            "CREATE FUNCTION pg_temp.announce() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" PERFORM {schema}.enqueue('mail', json_build_object('sale', NEW.n)::text);"
            " RETURN NULL; END $$"
        )
        own.execute("CREATE TRIGGER announce AFTER INSERT ON sale FOR EACH ROW EXECUTE FUNCTION pg_temp.announce()")
        own.execute("INSERT INTO sale SELECT generate_series(1, 3)")
    assert sorted(job.payload["sale"] for job in queue.jobs().jobs) == [1, 2, 3]


def test_times_budgets_and_digits_in_texts(queue, call):
    _, later = call(queue="mail", payload="{}", run_at="2030-01-02 03:04:05.678901+03")
    job = queue.job(later)
    assert job.run_at == 1_893_542_645_678_901
    assert job.max_attempts == 4
    text = json.dumps({"iban": "9" * 400, "note": 'a "1e400" and \\'})  # no large numbers
    _, small = call(queue="mail", payload=text, max_attempts=1)
    assert queue.job(small).max_attempts == 1


REFUSED: tuple[tuple[dict[str, object], str], ...] = (
    ({"queue": "nowhere"}, "not open in this database"),
    ({"payload": "{"}, "kesin: the payload is no JSON: invalid input syntax"),
    ({"payload": json.dumps("x" * 262_144)}, "at most 262144 bytes"),
    ({"payload": None}, "must be JSON"),
    ({"key": ""}, "key must have"),
    ({"key": "k" * 513}, "key must have"),
    ({"tenant": ""}, "tenant must have"),
    ({"tenant": None}, "tenant must have"),
    ({"max_attempts": 0}, "max_attempts must be"),
    ({"max_attempts": 1_001}, "max_attempts must be"),
    ({"once": True}, "once needs a key"),
    ({"priority": 3}, "priority must be"),
    ({"priority": None}, "priority must be"),
    ({"once": None}, "once needs a key"),
    ({"actor": ""}, "actor must have"),
    ({"actor": None}, "actor must have"),
    ({"run_at": "20000-01-01"}, "run_at must be"),
    ({"run_at": "infinity"}, "run_at must be"),
    ({"run_at": "1960-01-01"}, "run_at must be"),
    ({"payload": "[" * 3_000 + "]" * 3_000}, "nested deeper than 100 levels"),
    ({"payload": "[" * 9_000 + "]" * 9_000}, "at most 5000 lists"),
    ({"payload": "9" * 5_000}, "a number that is too large"),
    ({"payload": "[1e400]"}, "a number that is too large"),
    ({"payload": '"\\u0000"'}, "kesin: the payload is no JSON"),
)


def test_what_cannot_be_meant_is_refused(queue, call):
    for given, why in REFUSED:
        with pytest.raises(psycopg.Error, match=why):
            call(**{"queue": "mail", "payload": "{}", **given})
    assert queue.stats().total == 0


def test_the_newest_rules_decide_where_a_job_begins(postgres_store, call):
    """Birth edges of earlier versions stay declared: they are not taken."""
    plain = task_lifecycle("later")
    Queue("later", plain, postgres_store)
    enqueue = moves.enqueue("planned")
    plan = Move("plan", ("planned",), "ready", by=("clock",), when=(unclaimed,), stage="expire", run_at="now")
    states = (State("planned", initial=True, holds_key=True), *_not_initial(plain.states))
    newer = Lifecycle("later", states, (enqueue, plan, *plain.moves[1:]), plain.errors, plain.max_attempts)
    queue = Queue("later", newer, postgres_store)
    _, job_id = call(queue="later", payload="{}")
    assert queue.job(job_id).state == "planned"


def _not_initial(states: tuple[State, ...]) -> tuple[State, ...]:
    return tuple(replace(state, initial=False) for state in states)


def test_a_user_needs_only_the_right_to_call_it(queue, postgres_url):
    schema = queue.store.schema
    with psycopg.connect(postgres_url) as own:
        own.execute("CREATE ROLE app_of_test")
        own.execute(f"GRANT USAGE ON SCHEMA {schema} TO app_of_test")
        own.execute("SET LOCAL ROLE app_of_test")
        with pytest.raises(psycopg.errors.InsufficientPrivilege), own.transaction():
            own.execute(ONE_STEP.format(s=schema), ("mail", "{}"))
        own.execute("RESET ROLE")
        own.execute(f"GRANT EXECUTE ON FUNCTION {schema}.enqueue TO app_of_test")
        own.execute("SET LOCAL ROLE app_of_test")
        with pytest.raises(psycopg.errors.InsufficientPrivilege), own.transaction():
            own.execute(f"SELECT * FROM {schema}.job")
        assert own.execute(ONE_STEP.format(s=schema), ("mail", "{}")).fetchone()
        own.rollback()


def test_a_caller_cannot_pass_for_a_copy(queue, postgres_url):
    """The switches with which a restore turns the guards off are of no use to it."""
    with psycopg.connect(postgres_url) as own:
        own.execute(
            "SELECT set_config('kesin.copying', txid_current()::text, true),"
            " set_config('kesin.copied_queue', 'mail', true)"
        )
        own.execute(ONE_STEP.format(s=queue.store.schema), ("mail", "{}"))
    [job] = queue.jobs().jobs
    assert [event.move for event in queue.events(job.id)] == ["enqueue"]
    assert queue.stats().states["ready"] == 1


def test_two_producers_of_one_key_make_one_job(queue, postgres_url):
    """The second waits for the first; after a rollback its own job is the one."""
    statement = f"SELECT result FROM {queue.store.schema}.enqueue('mail', '{{}}', 'k')"
    with psycopg.connect(postgres_url) as first, psycopg.connect(postgres_url) as second:
        assert first.execute(statement).fetchone() == ("inserted",)
        second.execute("SET LOCAL lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            second.execute(statement)
        second.rollback()
        first.rollback()
        assert second.execute(statement).fetchone() == ("inserted",)
    assert queue.stats().total == 1
