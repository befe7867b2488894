"""Keys of jobs and the rule of retries, as the seed promises them."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kesin.workloads.pdf.config import FailSafePolicy, PdfRenderConfig
from kesin.workloads.pdf.errors import (
    MAX_RETRIES,
    TRANSIENT_ERRORS,
    PdfErrorCode,
    RenderFailed,
    public_code,
    should_retry,
)
from kesin.workloads.pdf.jobs.store import compute_job_key
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.limits import soft_timeout_s

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=3,
)  # fmt: skip
VARIABLES = st.dictionaries(st.text(max_size=8), JSON, max_size=2)


@given(st.text(min_size=1, max_size=20), VARIABLES)
@settings(max_examples=100)
def test_the_same_template_and_variables_have_the_same_key(name, variables):
    """Feature: pdf-render-worker, Property 2: the job key is a deterministic hash."""
    turned = json.loads(json.dumps(dict(reversed(list(variables.items())))))
    assert compute_job_key(name, variables) == compute_job_key(name, turned)


@given(st.text(max_size=20), VARIABLES, st.text(max_size=20), VARIABLES)
@settings(max_examples=100)
def test_other_templates_or_variables_have_another_key(name, variables, other, changed):
    """Feature: pdf-render-worker, Property 2: the job key is a deterministic hash."""
    same = (name, json.dumps(variables, sort_keys=True)) == (other, json.dumps(changed, sort_keys=True))
    assert (compute_job_key(name, variables) == compute_job_key(other, changed)) == same


def test_what_a_template_prints_differently_has_another_key():
    for first, second in (
        ({"n": 1}, {"n": 1.0}),
        ({"n": 1}, {"n": True}),
        ({"n": "1"}, {"n": 1}),
        ({"n": None}, {}),
        ({"n": [1, 2]}, {"n": [2, 1]}),
        ({"n": "é"}, {"n": "e\u0301"}),
        ({"n": -0.0}, {"n": 0.0}),
    ):
        assert compute_job_key("invoice", first) != compute_job_key("invoice", second), first


def test_values_that_are_not_json_have_no_key(subtests):
    variables: Any
    for variables in ({"n": float("nan")}, {"n": float("inf")}, {1: 2}, {"n": {3}}, {"n": b"x"}):
        with subtests.test(repr(variables)), pytest.raises(RenderFailed) as refused:
            compute_job_key("invoice", variables)
        assert refused.value.code == "TEMPLATE_ERROR", variables


def test_half_a_character_has_a_key_and_great_depth_is_refused():
    assert compute_job_key("invoice", {"n": "\ud800"})
    deep: list[object] = []
    for _ in range(40):
        deep = [deep]
    with pytest.raises(RenderFailed, match="nested deeper"):
        compute_job_key("invoice", {"n": deep})


@given(st.sampled_from(PdfErrorCode), st.integers(0, 10))
@settings(max_examples=100)
def test_only_transient_errors_are_retried_and_twice_at_most(code, count):
    """Feature: pdf-render-worker, Property 3: only transient errors are retried, at most twice."""
    assert should_retry(code, count) == (code in TRANSIENT_ERRORS and count < MAX_RETRIES)


def test_an_internal_code_is_unknown_to_callers():
    codes = [public_code(code) for code in (None, "WORKER_LOST", "TEMPLATE_ERROR")]
    assert codes == [None, PdfErrorCode.UNKNOWN, PdfErrorCode.TEMPLATE_ERROR]


def test_the_defaults_are_the_seeds():
    config = PdfRenderConfig()
    assert (config.hard_timeout, config.graceful_cancel_offset, config.max_retries) == (60, 5, 2)
    assert (config.artifact_ttl_seconds, config.cleanup_interval_seconds) == (86_400, 3_600)
    assert config.fail_safe_policy is FailSafePolicy.STRICT
    assert (config.template_allowlist, config.url_allowlist) == (set(), [])


@pytest.mark.parametrize("name", ["graceful_cancel_offset", "max_retries"])
@pytest.mark.parametrize("step", [-1, 1])
def test_a_value_that_would_have_no_effect_is_refused(name, step):
    used = getattr(PdfRenderConfig(), name)
    assert getattr(PdfRenderConfig(**{name: used}), name) == used
    with pytest.raises(ValidationError, match=name):
        PdfRenderConfig(**{name: used + step})


def test_the_defaults_are_those_in_effect():
    config = PdfRenderConfig()
    offset = config.hard_timeout - soft_timeout_s(config.hard_timeout)
    assert offset == config.graceful_cancel_offset
    assert pdf_lifecycle().max_attempts == config.max_retries + 1
