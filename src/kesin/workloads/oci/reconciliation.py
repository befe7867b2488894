"""Reconciliation: what a site sent, what Google took, what Google attributed, day by day.

The three are kept side by side and never become one rate. *Sent* are our COMPLETED rows by the day
of their upload; *taken* is what Google's upload summaries say of that day, by client; *attributed*
are Google's conversions by the day of the sale, so far. Days are those of the Google Ads account.
Google's summaries reach back seven days: a copy replaces the days that it has and keeps the others.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, Final, NamedTuple, cast
from zoneinfo import ZoneInfo, available_timezones

from kesin.engine.workload import WorkloadContext
from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid, Problem, Unavailable
from kesin.lifecycle.budget import DAY_S, HOUR_S, SECOND_US
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.workloads.oci.conversions.actions import MAX_ACTIONS
from kesin.workloads.oci.google import circuit_breaker as breaking
from kesin.workloads.oci.google.channel import Channel, ConnectionTrouble, RequestFailure
from kesin.workloads.oci.google.google_ads import GoogleAds
from kesin.workloads.oci.google.http import MAX_DIGITS, count_of, dig, objects, text_at
from kesin.workloads.oci.site import WORKLOAD, SiteContext

RECONCILIATION: Final = "reconciliation"  # a metadata entry; each month has one of its own
_MONTH: Final = f"{RECONCILIATION}:"
FIRST_HOUR: Final = 3  # of the account's day: Google counts late
RETRY_US: Final = HOUR_S * SECOND_US  # after a copy that failed
UPLOAD_DAYS: Final = 7  # that Google's upload summaries reach back
ATTRIBUTED_DAYS: Final = 30  # copied again each day, since the figure grows
JUDGED_AFTER_DAYS: Final = 2  # Google may take that long
LEAST_TAKEN_PERCENT: Final = 90  # of what was sent; below it, a warning
EARLIER_DAYS: Final = 14  # before the days of the first copy: rows of those may be sent in them
MAX_MONTHS: Final = 13
# Under which client Google counts the uploads of other channels is not known: all of them count.
_API: Final = ("GOOGLE_ADS_API",)
ZONE_QUERY: Final = "SELECT customer.time_zone FROM customer LIMIT 1"
_FIELDS: Final = ("client", "conversion_action_id", "conversion_action_name", "daily_summaries")
_SUMMARY: Final = "offline_conversion_upload_conversion_action_summary"
_SELECTED: Final = ", ".join(f"{_SUMMARY}.{name}" for name in _FIELDS)
UPLOADS_QUERY: Final = f"SELECT {_SELECTED} FROM {_SUMMARY}"  # noqa: S608  # the script's too
ATTRIBUTED_QUERY: Final = (
    "SELECT segments.date, segments.conversion_action, segments.conversion_action_name, "
    "metrics.all_conversions_by_conversion_date FROM customer "
    "WHERE segments.date BETWEEN '%s' AND '%s'"
)
_WHY: Final = "%(field)s: %(problem)s"

Days = dict[str, dict[str, dict[str, Any]]]  # day → action → sent (of it: known, others) …
# Google's counts; a key may come twice, since two of its actions may have one name here.
Uploads = Sequence[tuple[str, str, str, Sequence[int]]]  # day, action, client, as in `DayFigures`
Attributed = Sequence[tuple[str, str, float]]  # day and action


class DayFigures(NamedTuple):
    """The figures of an action on a day; None is what was not counted or copied."""

    day: str
    action: str
    sent: int | None
    successful: int | None
    failed: int | None
    pending: int | None
    attributed: float | None


def is_copied(site: SiteContext) -> bool:
    counts = site.settings.data_manager_counts
    return site.channel == "api" or (counts and site.channel == "data_manager")


def copy_figures(site: SiteContext, channels: Mapping[str, Channel]) -> int:
    """Copy Google's figures once an account day; returns when that is or was due."""
    now = site.queue.now()
    with site.locked_metadata(RECONCILIATION) as state:
        zone = ZoneInfo(state.get("zone", site.record.timezone))
        due_at = int(state.get("nextAt") or _time_of(_day(now, zone), zone, FIRST_HOUR))
        state["nextAt"] = now + RETRY_US if due_at <= now else due_at  # no other process makes it
    if due_at <= now:
        try:
            store_copy(site, *_read_account(site, cast("GoogleAds", channels["api"])))
        except Problem as problem:
            with site.locked_metadata(RECONCILIATION) as state:
                state["error"] = {"message": str(problem.message), "at": now}
    return due_at


def _read_account(site: SiteContext, google: GoogleAds) -> tuple[ZoneInfo, Uploads, Attributed]:
    """Ask Google for its figures; raises Problem with what it says."""
    credentials, breaker = breaking.open_credentials(site), breaking.read_breaker(site)
    if isinstance(credentials, ConnectionTrouble):
        raise Unavailable(_WHY, field=credentials.code, problem=Message(credentials.message))
    if breaker.state(site.queue.now()) != "closed":
        raise Unavailable(_WHY, field=breaker.code, problem=Message(breaker.message))

    def search(query: str) -> list[Any]:
        rows = google.search(credentials, query)
        if isinstance(rows, RequestFailure):
            if rows.trouble and rows.trouble.kind == "RATE_LIMIT":
                breaking.record_upload(site, rows.trouble)
            raise Unavailable(_WHY, field=rows.refused.code, problem=Message(rows.refused.message))
        return rows

    zone = parse_zone("".join(text_at(row, "customer", "timeZone") for row in search(ZONE_QUERY)))
    own, given = credentials.conversion_action_resource_name.rpartition("/")[2], site.settings
    names = {each.id: each.name for each in given.actions} or {own: given.conversion_name}
    uploads: list[tuple[str, str, str, Sequence[int]]] = []
    attributed: list[tuple[str, str, float]] = []
    for row in search(UPLOADS_QUERY):
        summary = dig(row, "offlineConversionUploadConversionActionSummary")
        name = text_at(summary, "conversionActionName")
        name = names.setdefault(str(dig(summary, "conversionActionId")), name)
        for day in objects(dig(summary, "dailySummaries")):
            counts = [count_of(day.get(f"{kind}Count")) for kind in DayFigures._fields[3:6]]
            uploads.append((text_at(day, "uploadDate"), name, text_at(summary, "client"), counts))
    today = _day(site.queue.now(), zone)
    for row in search(ATTRIBUTED_QUERY % (today - timedelta(days=ATTRIBUTED_DAYS), today)):
        action = text_at(row, "segments", "conversionAction").rpartition("/")[2]
        number = dig(row, "metrics", "allConversionsByConversionDate")
        is_count = isinstance(number, int | float) and 0 <= number < 10**MAX_DIGITS
        if is_count and action in names:  # not an action without uploads
            attributed.append((text_at(row, "segments", "date"), names[action], number))
    return zone, uploads, attributed


def parse_zone(name: str) -> ZoneInfo:
    if name not in available_timezones():
        field = {"field": "zone"}
        raise Invalid("%(zone)s is not a time zone", details=field, zone=repr(name[:64]))
    return ZoneInfo(name)


def _day(at_us: int, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(at_us / SECOND_US, zone).date()


def _time_of(day: date, zone: ZoneInfo, hour: int = 0) -> int:
    return round(datetime.combine(day, time(hour), zone).timestamp() * SECOND_US)


def store_copy(site: SiteContext, zone: ZoneInfo, uploads: Uploads, attributed: Attributed) -> None:
    """Merge a copy of Google's figures, count what was sent until today, and judge the days."""
    now, directory = site.queue.now(), site.context.commands.accounts.directory
    today, before = _day(now, zone), read_state(site).get("counted", {})
    counted, sent = _count_sent(site, before, zone, today)
    with site.locked_metadata(RECONCILIATION) as state:
        days = read_days(site)
        if state.get("counted", {}) == before:  # else another process counted meanwhile
            state["counted"] = counted
            for (day, action, kind), n in sent.items():
                of = _figures(days, day, action)
                of[kind] = of.get(kind, 0) + n
        _merge(days, uploads, attributed, today)
        months = sorted({day[:7] for day in days})
        for month in months[-MAX_MONTHS:]:
            value = {day: of for day, of in days.items() if day.startswith(month)}
            site.put_metadata(_MONTH + month, value)
        for month in months[:-MAX_MONTHS]:
            directory.delete_metadata(WORKLOAD, site.id, _MONTH + month)
        next_at = _time_of(today + timedelta(days=1), zone, FIRST_HOUR)
        state |= {"zone": zone.key, "copiedAt": now, "nextAt": next_at}
        state["short"] = list(_short_days(site, days, today))
        state.pop("error", None)


def _merge(days: Days, uploads: Uploads, attributed: Attributed, today: date) -> None:
    """Put Google's counts in: of its days the newest copy alone counts, and today not yet."""
    first, last = (today - timedelta(days=ATTRIBUTED_DAYS)).isoformat(), today.isoformat()
    uploads = [row for row in uploads if first <= row[0] < last]
    copied, asked = {row[0] for row in uploads}, {row[1] for row in (*uploads, *attributed)}
    for day, actions in days.items():
        for action, of in actions.items():
            if day in copied:
                of.pop("taken", None)
            if day >= first and action in asked:
                of.pop("attributed", None)  # Google leaves out what is zero
    for day, action, client, counts in uploads:
        taken = _figures(days, day, action).setdefault("taken", {})
        taken[client] = list(map(sum, zip(taken.get(client, (0, 0, 0)), counts, strict=True)))
    for day, action, conversions in attributed:
        if first <= day < last:
            of = _figures(days, day, action)
            of["attributed"] = round(of.get("attributed", 0) + conversions, 2)


def _figures(days: Days, day: str, action: str) -> dict[str, Any]:
    """The figures of an action on a day; what is too much for a day is left out."""
    actions = days.setdefault(day, {})
    fits = action in actions or len(actions) < MAX_ACTIONS
    return actions.setdefault(action, {}) if fits else {}


def _count_sent(
    site: SiteContext, before: Mapping[str, Any], zone: ZoneInfo, today: date
) -> tuple[dict[str, Any], Counter[tuple[str, str, str]]]:
    """Count the rows sent on the days that are over and were not counted yet, by day and action.

    The newest rows are read first, and no more of them than were sent since: the queue's counters
    say how many. Only if some were sent long after their arrival, all older rows are read too; the
    first time that is not known, and the rows of some days are read.
    """
    now, queue, since = site.queue.now(), site.queue, today - timedelta(days=UPLOAD_DAYS - 1)
    moves = queue.store.move_counts(queue.name)
    entered = sum(m.n for m in moves if m.tenant == site.id and m.to_state == "COMPLETED")
    begin = before.get("at", _time_of(since, zone))  # the account's zone may have changed
    end, found, later, cursor = _time_of(today, zone), 0, 0, None
    oldest = None if "entered" in before else begin - EARLIER_DAYS * DAY_S * SECOND_US
    sent = Counter[tuple[str, str, str]]()
    where = Filter(states=("COMPLETED",), tenants=(site.id,), created_from=oldest)
    while begin < end:
        page = queue.jobs(where, limit=MAX_PAGE, cursor=cursor)
        for job in page.jobs:
            sent_at = job.stamp_2 or 0
            found, later = found + (begin <= sent_at <= now), later + (end <= sent_at <= now)
            if begin <= sent_at < end:
                is_others = dig(job.result, "channel") != "api"
                kinds = {"sent": True, "known": bool(job.error_code), "others": is_others}
                action = str(dig(job.payload, "conversionName") or "")
                day = _day(sent_at, zone).isoformat()
                sent.update((day, action, kind) for kind in kinds if kinds[kind])
        cursor, missing = page.cursor, entered - before.get("entered", 0) - found
        if cursor is None or (missing <= 0 and page.jobs[-1].created_at < begin):
            counted = {"until": today.isoformat(), "at": end, "entered": entered - later}
            return {"since": since.isoformat(), **before, **counted}, sent
    return {**before}, sent  # today's


def read_state(site: SiteContext) -> dict[str, Any]:
    """The account's zone, the time and the problem of the last copy, the days that fall short."""
    return site.read_metadata(RECONCILIATION) or {}


def read_days(site: SiteContext) -> Days:
    page = site.context.commands.accounts.directory.metadata_page
    entries = page(WORKLOAD, site.id, after=_MONTH, limit=MAX_MONTHS)
    months = [json.loads(e.value) for e in entries if e.name.startswith(_MONTH)]
    return {day: actions for month in months for day, actions in month.items()}


def read_figures(site: SiteContext, first: date, last: date) -> Iterator[DayFigures]:
    """The figures of these days, newest first, by action."""
    days, counted = read_days(site), read_state(site).get("counted", {"since": "", "until": ""})
    for day in sorted(days, reverse=True):
        none = 0 if counted["since"] <= day < counted["until"] else None
        for action, of in sorted(days[day].items()):
            if of and first.isoformat() <= day <= last.isoformat():
                numbers = (of.get("sent", none), *_taken(of), of.get("attributed"))
                yield DayFigures(day, action, *numbers)


def _taken(of: Mapping[str, Any], clients: Sequence[str] = ()) -> Sequence[int | None]:
    """Successful, failed and pending uploads, of all clients or of these; None if none is known."""
    counts = [n for client, n in of.get("taken", {}).items() if not clients or client in clients]
    return list(map(sum, zip(*counts, strict=True))) if counts else [None] * 3


def _short_days(site: SiteContext, days: Days, today: date) -> Iterator[dict[str, Any]]:
    """The days of which Google took too little, two days later; the newest first."""
    own = {action.name for action in site.settings.actions} or {site.settings.conversion_name}
    for back in range(JUDGED_AFTER_DAYS, UPLOAD_DAYS):
        day = (today - timedelta(days=back)).isoformat()
        actions = days.get(day, {})
        sent = {name: of for name, of in actions.items() if of.get("sent")}
        counted = sent if sent.keys() <= own else sent.keys() | own
        clients = () if any(of.get("others") for of in sent.values()) else _API
        counts = [_taken(actions.get(name, {}), clients) for name in counted]
        taken = sum((successful or 0) + (pending or 0) for successful, _, pending in counts)
        total = sum(of["sent"] - of.get("known", 0) for of in sent.values())
        if taken * 100 < total * LEAST_TAKEN_PERCENT:
            yield {"day": day, "sent": total, "taken": taken}


def short_days(state: Mapping[str, Any], now: int) -> list[dict[str, Any]]:
    """The days of which Google took too little, as the last copy shows; an old copy shows none."""
    is_old = now - int(state.get("copiedAt", 0)) > UPLOAD_DAYS * DAY_S * SECOND_US
    return [] if is_old else list(state.get("short", ()))


def short_sites(context: WorkloadContext) -> int:
    directory, now = context.commands.accounts.directory, context.queue.now()
    entries = directory.metadata_entries(WORKLOAD, name=RECONCILIATION)
    return sum(bool(short_days(json.loads(entry.value) or {}, now)) for entry in entries)
