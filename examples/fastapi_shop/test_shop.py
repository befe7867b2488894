"""The shop's tests: a real file, no server, no waiting."""

import importlib

import pytest
from fastapi.testclient import TestClient

from kesin import Worker


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.setenv("KESIN_DATABASE_URL", str(tmp_path / "shop.db"))
    import shop

    return importlib.reload(shop)


def test_an_order_and_its_mail(shop):
    answer = TestClient(shop.app).post("/orders", json={"email": "ada@example.org", "price": 5})
    assert answer.status_code == 201
    Worker(shop.mails, shop.send).drain()
    mail = shop.mails.job(answer.json()["mail"])
    assert (mail.state, mail.result) == ("done", {"sent_to": "ada@example.org"})


def test_an_order_that_is_refused_leaves_no_mail(shop):
    answer = TestClient(shop.app).post("/orders", json={"email": "ada@example.org", "price": 0})
    assert answer.status_code == 422
    assert shop.mails.stats().total == 0
    with shop.Session(shop.engine) as session:
        assert session.query(shop.Order).count() == 0


def test_a_mail_without_an_address_fails_for_good(shop):
    job = shop.mails.enqueue(shop.Mail(to="nowhere"))
    Worker(shop.mails, shop.send).drain()
    assert shop.mails.job(job.id).error_code == "NO_ADDRESS"


def test_the_summary_is_scheduled(shop):
    [row] = shop.store.schedules("mails")
    assert row.name == "summary"
