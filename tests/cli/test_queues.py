import json

from kesin import open_store
from kesin.foundation.ids import is_id


def test_enqueue_prints_the_id_of_the_new_job_or_of_the_one_that_holds_its_key(kesin, database):
    answer = kesin("enqueue", "task", '{"to": "ada"}', "--json")
    assert answer.code == 0
    assert answer.json["result"] == "inserted"
    assert answer.json["state"] == "ready"
    shown = kesin("jobs", "show", answer.json["id"], "--json").json
    assert shown["payload"] == {"to": "ada"}
    assert shown["actor"].startswith("cli:")
    later = kesin("enqueue", "task", "1", "--delay", "3600", "--tenant", "north", "--key", "k", "--json").json["id"]
    shown = kesin("jobs", "show", later, "--json").json
    assert shown["run_at"] > shown["created_at"]
    assert kesin("stats", "--json").json[0]["tenants"]["north"]["ready"] == 1
    answer = kesin("enqueue", "task", "2", "--tenant", "north", "--key", "k")
    assert (answer.code, answer.out) == (0, f"duplicate of {later} (ready)\n")


def test_a_key_held_for_good_and_a_priority(kesin, database):
    job = kesin("enqueue", "task", "1", "--key", "k", "--once", "--priority", "2", "--json").json
    stored = open_store(database).job(job["id"])
    assert (stored.once, stored.priority) == (1, 2)
    for wrong in (("1", "--once"), ("1", "--priority", "3"), ("-", "--key", "k")):
        answer = kesin("enqueue", "task", *wrong, text="1\n")
        assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_a_payload_that_is_no_json_or_too_large_is_a_usage_error(kesin):
    for payload in ("{", "NaN", "[" * 100_000, json.dumps("x" * 300_000)):
        answer = kesin("enqueue", "task", payload)
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert answer.err.startswith("kesin: the payload is")
    assert "the limit is 262144" in answer.err


def test_standard_input_is_a_payload_a_line(kesin):
    lines = "".join(f'{{"n": {n}}}\n' for n in range(1_001))
    answer = kesin("enqueue", "task", "-", text=lines + "\n")
    assert (answer.code, answer.out) == (0, "inserted 1,001, refused 0\n")
    assert kesin("stats", "task", "--json").json[0]["jobs"] == 1_001


def test_a_bad_line_is_refused_by_number_and_the_others_are_enqueued(kesin):
    answer = kesin("enqueue", "task", "-", text='1\n{"a"\n2\n')
    assert (answer.code, answer.out) == (1, "inserted 2, refused 1\n")
    assert answer.err.startswith("kesin: line 2: the payload is not JSON")
    answer = kesin("enqueue", "task", "-", "--json", text="1\nx\n")
    by_line = {result["line"]: result for result in map(json.loads, answer.lines)}
    assert is_id(by_line[1]["id"])
    assert "not JSON" in by_line[2]["error"]


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
    answer = kesin("resume", "task")
    assert (answer.code, answer.out) == (0, "task was not paused\n")
