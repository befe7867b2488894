"""The shop's tests: a real file, no server, no waiting."""

import os
import tempfile

os.environ["KESIN_DATABASE_URL"] = os.path.join(tempfile.mkdtemp(), "shop.db")  # noqa: PTH118

import shop
from django.test import Client

from kesin import Worker


def post(price):
    body = {"email": "ada@example.org", "price": price}
    return Client().post("/orders", body, content_type="application/json")


def test_an_order_and_its_mail():
    answer = post(5)
    assert answer.status_code == 201
    Worker(shop.mails, shop.send).drain()
    mail = shop.mails.job(answer.json()["mail"])
    assert (mail.state, mail.result) == ("done", {"sent_to": "ada@example.org"})


def test_an_order_that_is_refused_leaves_no_mail():
    before = shop.mails.stats().total, shop.Order.objects.count()
    assert post(0).status_code == 422
    assert (shop.mails.stats().total, shop.Order.objects.count()) == before


def test_the_summary_is_scheduled():
    [row] = shop.store.schedules("mails")
    assert row.name == "summary"
