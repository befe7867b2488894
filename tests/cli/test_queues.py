import json

import pytest

from kesin import open_store
from kesin.foundation.ids import is_id


def test_enqueue_prints_the_id_of_the_new_job(kesin, database):
    answer = kesin("enqueue", "task", '{"to": "ada"}', "--json")
    assert answer.code == 0
    assert answer.json["result"] == "inserted"
    assert answer.json["state"] == "ready"
    shown = kesin("jobs", "show", answer.json["id"], "--json").json
    assert shown["payload"] == {"to": "ada"}
    assert shown["actor"].startswith("cli:")


def test_a_duplicate_key_prints_the_job_that_holds_it(kesin):
    first = kesin("enqueue", "task", "1", "--key", "order-1", "--json").json["id"]
    answer = kesin("enqueue", "task", "2", "--key", "order-1")
    assert answer.code == 0
    assert answer.out == f"duplicate of {first} (ready)\n"


def test_a_delayed_job_is_not_due(kesin):
    job = kesin("enqueue", "task", "1", "--delay", "3600", "--json").json["id"]
    shown = kesin("jobs", "show", job, "--json").json
    assert shown["run_at"] > shown["created_at"]
    assert kesin("stats", "task", "--json").json[0]["oldest_due_at"] is None


def test_a_job_has_the_given_tenant(kesin):
    kesin("enqueue", "task", "1", "--tenant", "north")
    assert kesin("stats", "--json").json[0]["tenants"]["north"]["ready"] == 1


def test_a_key_held_for_good_and_a_priority(kesin, database):
    job = kesin("enqueue", "task", "1", "--key", "k", "--once", "--priority", "2", "--json").json
    stored = open_store(database).job(job["id"])
    assert (stored.once, stored.priority) == (1, 2)
    for wrong in (("--once",), ("--priority", "3")):
        answer = kesin("enqueue", "task", "1", *wrong)
        assert (answer.code, answer.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("payload", ["{", "NaN", "[" * 100_000])
def test_a_payload_that_is_no_json_is_a_usage_error(kesin, payload):
    answer = kesin("enqueue", "task", payload)
    assert answer.code == 2
    assert answer.err.startswith("kesin: the payload is")
    assert answer.err.count("\n") == 1


def test_a_payload_too_large_is_refused_with_the_limit(kesin):
    answer = kesin("enqueue", "task", json.dumps("x" * 300_000))
    assert answer.code == 2
    assert "the limit is 262144" in answer.err


def test_standard_input_is_a_payload_a_line(kesin):
    lines = "".join(f'{{"n": {n}}}\n' for n in range(2_500))
    answer = kesin("enqueue", "task", "-", text=lines + "\n")
    assert (answer.code, answer.out) == (0, "inserted 2,500, refused 0\n")
    assert kesin("stats", "task", "--json").json[0]["jobs"] == 2_500


def test_a_bad_line_is_refused_by_number_and_the_others_are_enqueued(kesin):
    answer = kesin("enqueue", "task", "-", text='1\n{"a"\n2\n')
    assert (answer.code, answer.out) == (1, "inserted 2, refused 1\n")
    assert answer.err.startswith("kesin: line 2: the payload is not JSON")


def test_with_json_every_line_has_a_result(kesin):
    answer = kesin("enqueue", "task", "-", "--json", text="1\nx\n")
    by_line = {result["line"]: result for result in map(json.loads, answer.lines)}
    assert is_id(by_line[1]["id"])
    assert "not JSON" in by_line[2]["error"]


def test_a_key_with_many_payloads_is_a_usage_error(kesin):
    assert kesin("enqueue", "task", "-", "--key", "k", text="1\n").code == 2


def test_a_new_queue_needs_its_lifecycle_once(kesin):
    refused = kesin("enqueue", "mails", "1")
    assert refused.code == 2
    assert "--lifecycle" in refused.err
    assert kesin("enqueue", "mails", "1", "--lifecycle", "task").code == 0
    assert kesin("enqueue", "mails", "2").code == 0
    assert kesin("stats", "mails", "--json").json[0]["states"]["ready"] == 2


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(kesin, database, fill, module):
    name = module("def work(job): pass")
    fill("task", 3)
    assert kesin("pause", "task", "--reason", "inventory").out == "paused task\n"
    assert kesin("stats", "--json").json[0]["paused"][0]["reason"] == "inventory"
    assert "all (inventory)" in kesin("stats").out
    kesin("worker", "task", "--handler", f"{name}:work", "--until-idle")
    assert kesin("stats", "--json").json[0]["states"]["done"] == 0
    assert kesin("resume", "task").out == "resumed task\n"
    kesin("worker", "task", "--handler", f"{name}:work", "--until-idle")
    assert kesin("stats", "--json").json[0]["states"]["done"] == 3


def test_a_single_tenant_can_be_paused(kesin, fill):
    fill("task", 1)
    kesin("pause", "task", "--tenant", "north")
    kesin("pause", "task")
    answer = kesin("resume", "task")
    assert answer.lines == ["resumed task", "still paused: north of task"]
    assert kesin("resume", "task", "--tenant", "north").out == "resumed north of task\n"


def test_resuming_a_queue_that_is_not_paused_is_no_error(kesin, fill):
    fill("task", 1)
    answer = kesin("resume", "task")
    assert (answer.code, answer.out) == (0, "task was not paused\n")
