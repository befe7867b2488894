import json
import logging
import sys
from io import FileIO, TextIOWrapper

import pytest
import structlog
from structlog.testing import capture_logs

from kesin.foundation.logs import Logger, set_up_logs

log = structlog.get_logger("kesin.test")


def test_logs_are_on_standard_error_plain_or_as_json_and_without_payloads_and_results(capsys):
    set_up_logs("console", "info")
    log.info("claimed", queue="task")
    shown = capsys.readouterr().err
    assert "claimed" in shown
    assert "queue=task" in shown
    assert "\x1b" not in shown, "no colours outside a terminal"
    set_up_logs("json")
    log.info("claimed")  # below the level
    log.warning("lease_lost")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["lease_lost"]
    set_up_logs("json", "info")
    log.info("claimed", queue="task", jobs=3, payload={"card": "4111"}, result="hush")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("4111" in shown.err, "hush" in shown.err) == (False, False)
    line = json.loads(shown.err)
    assert (line["event"], line["queue"], line["jobs"]) == ("claimed", "task", 3)
    assert line["level"] == "info"
    assert line["timestamp"].endswith("Z")


def charge(card: str) -> None:
    raise ValueError("no money")


def test_a_traceback_comes_without_the_values_of_variables(capsys):
    for style in ("console", "json"):
        set_up_logs(style)
        try:
            charge("4" + "111")
        except ValueError:
            log.exception("handler_raised")
        shown = capsys.readouterr().err
        assert "ValueError: no money" in shown
        assert "4111" not in shown


def test_libraries_log_in_the_same_form(capsys):
    set_up_logs("json")
    set_up_logs("json")  # a second time adds no second line
    logging.getLogger("library.of.others").warning("discarding %s", "a connection")
    lines = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["discarding a connection"]


@pytest.mark.parametrize("style", ["console", "json"])
def test_whoever_logs_goes_on_where_nothing_can_be_written(style, monkeypatch):
    """Standard error may be a file on a full disk, or a pipe that nobody reads any more."""
    with TextIOWrapper(FileIO("/dev/full", "w"), write_through=True) as full:
        monkeypatch.setattr(sys, "stderr", full)
        set_up_logs(style)
        Logger("kesin.test").warning("lease_lost")
        Logger("kesin.test").exception("lane_failed", problem=ValueError("no money"))
        logging.getLogger("library.of.others").warning("discarding %s", "a connection")


def test_a_line_follows_the_last_configuration(capsys):
    log = Logger("tests")
    set_up_logs("json")
    try:
        log.warning("ours")
        with capture_logs() as captured:
            log.warning("captured")
        structlog.reset_defaults()
        with capture_logs():
            log.warning("theirs")
        set_up_logs("json")
        log.warning("ours again")
    finally:
        structlog.reset_defaults()
    assert [line["event"] for line in captured] == ["captured"]
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["ours", "ours again"]
