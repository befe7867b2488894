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


@pytest.mark.parametrize("queue", LIFECYCLES)
def test_the_table_above_names_every_channel_there_is(queue):
    named = {channel for known, channel in VERDICTS if known == queue}
    assert set(LIFECYCLES[queue].errors.channels) == named


@pytest.mark.parametrize("channel", ["api", "data_manager"])
def test_an_order_id_google_already_knows_completes_the_row_and_keeps_the_code(channel):
    found = OCI.resolve("ORDER_ID_ALREADY_IN_USE", channel=channel)
    assert (found.verdict, found.move) == (Verdict.COMPLETE, "ack_duplicate")


@pytest.mark.parametrize("channel", ["api", "data_manager"])
@pytest.mark.parametrize("code", ["TOO_RECENT_EVENT", "TOO_RECENT_CALL", "TOO_RECENT_CONVERSION_ACTION"])
def test_what_google_calls_too_recent_waits(code, channel):
    found = OCI.resolve(code, channel=channel)
    assert (found.verdict, found.move) == (Verdict.WAIT, "too_recent")


@pytest.mark.parametrize(
    ("queue", "code", "category", "move"),
    [
        ("optiplan", "E_NOBODY_DECLARED_IT", TRANSIENT, "fail"),
        ("pdf", "NAVIGATION_TIMEOUT", TRANSIENT, "fail"),
        ("pdf", "TEMPLATE_ERROR", VALIDATION, "fail"),
        ("pdf", "NOBODY_DECLARED_IT", PERMANENT, "fail"),
    ],
)
def test_a_code_has_its_category_and_its_move(queue, code, category, move):
    found = LIFECYCLES[queue].errors.resolve(code)
    assert (found.category, found.move) == (category, move)


@pytest.mark.parametrize("queue", LIFECYCLES)
def test_every_error_a_move_records_by_itself_is_a_declared_code_of_that_category(queue):
    lifecycle = LIFECYCLES[queue]
    fixed = {move.error for move in lifecycle.moves if isinstance(move.error, Fixed)}
    declared = {(code.name, code.category) for code in lifecycle.errors.codes}
    assert fixed
    assert {(error.code, error.category) for error in fixed} <= declared


def test_the_category_is_the_declared_one_or_the_callers_or_the_unknown_one():
    assert taxonomy(unknown=AUTH).resolve("ValueError").category is AUTH
    assert taxonomy(unknown=AUTH).resolve("ValueError", category=RATE_LIMIT).category is RATE_LIMIT
    assert taxonomy().resolve("KNOWN", category=TRANSIENT).category is PERMANENT


def test_a_channel_judges_by_its_own_rules_and_without_one_the_first():
    assert taxonomy().resolve("KNOWN").verdict is Verdict.FAIL
    assert taxonomy().resolve("KNOWN", channel="second").verdict is Verdict.RETRY


def test_a_code_with_a_verdict_of_its_own_is_judged_alike_on_every_channel():
    own = taxonomy(codes=(Code("GONE", PERMANENT, Verdict.RETRY),))
    found = {own.resolve("GONE", channel=channel).move for channel in own.channels}
    assert found == {"retry"}


def test_a_code_with_a_move_of_its_own_overrides_the_move_of_its_verdict():
    own = taxonomy(codes=(Code("GONE", PERMANENT, move="bury"),))
    found = own.resolve("GONE")
    assert (found.verdict, found.move) == (Verdict.FAIL, "bury")


def test_a_channel_without_a_rule_is_an_error_that_names_category_and_channel():
    with pytest.raises(LookupError, match="category TRANSIENT on channel 'fax'"):
        taxonomy().resolve("ValueError", channel="fax")


def test_a_verdict_without_a_move_is_an_error_that_names_the_verdict():
    with pytest.raises(LookupError, match="hold"):
        taxonomy(codes=(Code("ASK", AUTH, Verdict.HOLD),)).resolve("ASK")


def test_a_doubled_rule_shows_both_verdicts():
    doubled = taxonomy(rules=(*taxonomy().rules, Rule("first", AUTH, Verdict.RETRY)))
    assert list(doubled.verdicts("first", AUTH)) == [Verdict.FAIL, Verdict.RETRY]
