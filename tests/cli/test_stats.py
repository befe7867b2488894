import json


def test_jobs_are_counted_by_queue_and_state(kesin, database, fill):
    fill("task", 3)
    fill("pdf", 1)
    queues = {record["queue"]: record for record in kesin("stats", "--json").json}
    assert queues["task"]["states"] == {"ready": 3, "running": 0, "done": 0, "failed": 0}
    assert queues["pdf"]["jobs"] == 1
    assert queues["task"]["lease_over"] == 0
    assert queues["task"]["oldest_due_s"] >= 0
    assert queues["task"]["oldest_due_at"].endswith("Z")
    assert [record["queue"] for record in kesin("stats", "pdf", "--json").json] == ["pdf"]
    head, line = kesin("stats", "task").lines
    assert " ".join(head.split()) == "QUEUE JOBS STATES OLDEST DUE EXPIRED LEASES PAUSED"
    assert line.startswith("task   3     ready 3")


def test_a_store_without_queues_says_so_and_reading_a_registered_queue_does_not_open_it(kesin):
    kesin("migrate")
    assert kesin("stats", "oci", "--json").json[0]["jobs"] == 0
    assert kesin("jobs", "list", "oci").out == "no job matches\n"
    assert kesin("stats").out == "no queue has been opened yet\n"
    assert kesin("stats", "--json").json == []


def test_watch_prints_the_statistics_repeatedly(kesin, fill):
    fill("task", 1)
    answer = kesin("stats", "--watch", "--interval", "0.01", "--count", "3", "--json")
    assert [json.loads(line)[0]["jobs"] for line in answer.lines] == [1, 1, 1]
    assert len(kesin("stats", "--watch", "--interval", "0.01", "--count", "2").lines) == 4


def test_ctrl_c_ends_watch_without_a_traceback(kesin, fill, programs):
    fill("task", 1)
    words = ("stats", "--watch", "--interval", "60")
    answer = programs.on_terminal(*words, after="ready 1", type_in="\x03")
    assert (answer.code, "Traceback" in answer.out) == (0, False)
    assert "\x1b[" in answer.out, "it redraws in place"
