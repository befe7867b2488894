from dataclasses import replace

import pytest

from kesin.lifecycle.errors import Category, Code, Rule, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import Fixed
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.tables import table

LIFECYCLES = {
    lifecycle.name: lifecycle
    for lifecycle in (oci_lifecycle(), pdf_lifecycle(), optiplan_lifecycle(), task_lifecycle())
}
OCI = LIFECYCLES["oci"].errors
VALIDATION, AUTH, TRANSIENT, RATE_LIMIT, PERMANENT = Category

# What each specification says: channel → category → (verdict, move).
ALWAYS_FAIL = dict.fromkeys(Category, ("fail", "ack_failed"))
OURS = {**ALWAYS_FAIL, TRANSIENT: ("retry", "retry_later"), RATE_LIMIT: ("retry", "retry_later")}
VERDICTS = {
    ("oci", "script"): ALWAYS_FAIL,
    ("oci", "api"): OURS,
    ("oci", "data_manager"): OURS,
    ("pdf", "worker"): dict.fromkeys(Category, ("fail", "fail")),
    ("optiplan", "runner"): {**dict.fromkeys(Category, ("fail", "fail")), VALIDATION: ("hold", "hold")},
    ("task", "worker"): {
        VALIDATION: ("fail", "fail"),
        AUTH: ("fail", "fail"),
        TRANSIENT: ("retry", "retry"),
        RATE_LIMIT: ("retry", "retry"),
        PERMANENT: ("fail", "fail"),
    },
}
ROWS = [
    pytest.param(queue, channel, category, *answer, id=f"{queue}-{channel}-{category}")
    for (queue, channel), table in VERDICTS.items()
    for category, answer in table.items()
]


def taxonomy(**changes):
    plain = Taxonomy(
        channels=("first", "second"),
        rules=(
            *same_everywhere(("first",), dict.fromkeys(Category, Verdict.FAIL)),
            *same_everywhere(("second",), dict.fromkeys(Category, Verdict.RETRY)),
        ),
        moves=((Verdict.FAIL, "fail"), (Verdict.RETRY, "retry")),
        codes=(Code("KNOWN", PERMANENT),),
        unknown=TRANSIENT,
    )
    return replace(plain, **changes)


@table(("queue", "channel", "category", "verdict", "move"), ROWS)
def test_a_category_has_the_verdict_of_its_channel(queue, channel, category, verdict, move):
    found = LIFECYCLES[queue].errors.resolve("NEVER_SEEN", channel=channel, category=category)
    assert (found.code, found.category, found.verdict, found.move) == ("NEVER_SEEN", category, verdict, move)


def test_the_table_above_names_every_channel_there_is():
    assert {(name, channel) for name in LIFECYCLES for channel in LIFECYCLES[name].errors.channels} == VERDICTS.keys()


CODES = [
    ("optiplan", "E_NOBODY_DECLARED_IT", TRANSIENT, "fail"),
    ("pdf", "NAVIGATION_TIMEOUT", TRANSIENT, "fail"),
    ("pdf", "TEMPLATE_ERROR", VALIDATION, "fail"),
    ("pdf", "NOBODY_DECLARED_IT", PERMANENT, "fail"),
]


def test_a_code_has_its_category_and_its_move():
    for queue, code, category, move in CODES:
        found = LIFECYCLES[queue].errors.resolve(code)
        assert (found.category, found.move) == (category, move), code
    for channel in ("api", "data_manager"):  # to Google
        found = OCI.resolve("ORDER_ID_ALREADY_IN_USE", channel=channel)
        assert (found.verdict, found.move) == (Verdict.COMPLETE, "ack_duplicate")
        for code in ("TOO_RECENT_EVENT", "TOO_RECENT_CALL", "TOO_RECENT_CONVERSION_ACTION"):
            found = OCI.resolve(code, channel=channel)
            assert (found.verdict, found.move) == (Verdict.WAIT, "too_recent")


def test_every_error_a_move_records_by_itself_is_a_declared_code_of_that_category():
    for lifecycle in LIFECYCLES.values():
        fixed = {move.error for move in lifecycle.moves if isinstance(move.error, Fixed)}
        declared = {(code.name, code.category) for code in lifecycle.errors.codes}
        assert fixed
        assert {(error.code, error.category) for error in fixed} <= declared


def test_the_category_is_the_declared_one_or_the_callers_or_the_unknown_one():
    assert taxonomy(unknown=AUTH).resolve("ValueError").category is AUTH
    assert taxonomy(unknown=AUTH).resolve("ValueError", category=RATE_LIMIT).category is RATE_LIMIT
    assert taxonomy().resolve("KNOWN", category=TRANSIENT).category is PERMANENT


def test_a_channel_judges_by_its_own_rules_but_for_codes_with_a_verdict_or_a_move_of_their_own():
    assert taxonomy().resolve("KNOWN").verdict is Verdict.FAIL  # of the first channel
    assert taxonomy().resolve("KNOWN", channel="second").verdict is Verdict.RETRY
    own = taxonomy(codes=(Code("GONE", PERMANENT, Verdict.RETRY),))
    assert {own.resolve("GONE", channel=channel).move for channel in own.channels} == {"retry"}
    own = taxonomy(codes=(Code("GONE", PERMANENT, move="bury"),))
    found = own.resolve("GONE")
    assert (found.verdict, found.move) == (Verdict.FAIL, "bury")


def test_a_channel_without_a_rule_and_a_verdict_without_a_move_are_errors_by_name():
    with pytest.raises(LookupError, match="category TRANSIENT on channel 'fax'"):
        taxonomy().resolve("ValueError", channel="fax")
    with pytest.raises(LookupError, match="hold"):
        taxonomy(codes=(Code("ASK", AUTH, Verdict.HOLD),)).resolve("ASK")


def test_a_doubled_rule_shows_both_verdicts():
    doubled = taxonomy(rules=(*taxonomy().rules, Rule("first", AUTH, Verdict.RETRY)))
    assert list(doubled.verdicts("first", AUTH)) == [Verdict.FAIL, Verdict.RETRY]
