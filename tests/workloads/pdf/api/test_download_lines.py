"""A PDF may be full of personal data: each download is a line in the audit log."""

from typing import Any

from tests.workloads.pdf.front import Front, order


def test_a_pdf_that_goes_out_is_a_line_and_nothing_else_is(front: Front, me: dict[str, str]):
    body = order()
    waiting, done = front.submit(me), front.done(me, body)
    etag = front.fetch(me, done).headers["etag"]

    def lines(job_id: str, who: dict[str, str], **headers: str) -> list[tuple[Any, ...]]:
        said = front.said(lambda: front.fetch(who, job_id, **headers))
        return [(line.actor, line.action, line.target) for line in said]

    mine = (front.name_of(me), "pdf.download", done)
    assert lines(done, me) == [mine]
    assert lines(done, me, range="bytes=0-9") == [mine]
    assert lines(done, front.boss) == [(front.name_of(front.boss), "pdf.download", done)]
    assert lines(done, me, if_none_match=etag) == []
    assert lines(waiting, me) == []
    path = f"/pdf/jobs/{done}/download"
    assert front.said(lambda: front.client.head(path, headers=me)) == []
    waited = front.said(lambda: front.post(me, body, wait=1))
    assert [line.action for line in waited] == ["pdf.download"]


def test_the_owner_reads_what_a_viewer_sees_masked(front: Front, me: dict[str, str]):
    job_id = front.submit(me)
    variables = front.seen(job_id).payload["variables"]
    reader = front.key("read")
    shown = front.client.get(f"/api/jobs/{job_id}", headers=reader).json()["payload"]
    assert shown["payload"]["variables"] != variables
    assert shown["template"] == front.get(me, job_id).json()["template_name"]
