"""The shop's tests: a real file, no server, no waiting."""

import os
import socketserver
import tempfile
import threading

import pytest

os.environ["KESIN_DATABASE_URL"] = os.path.join(tempfile.mkdtemp(), "shop.db")  # noqa: PTH118

import shop
from django.conf import settings
from django.test import Client

from kesin import Worker


class MailServer(socketserver.ThreadingTCPServer):
    """A minimal SMTP server that stores the mails it receives."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Session)
        self.mails: list[str] = []


class Session(socketserver.StreamRequestHandler):
    """The mails of one client."""

    def handle(self) -> None:
        self.wfile.write(b"220 ready\r\n")
        for line in self.rfile:
            word = line[:4].upper()
            answer = {b"DATA": b"354 go on", b"QUIT": b"221 bye"}.get(word, b"250 ok")
            self.wfile.write(answer + b"\r\n")
            if word == b"DATA":
                self.server.mails.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
                self.wfile.write(b"250 kept\r\n")


@pytest.fixture(autouse=True)
def mail_server(monkeypatch):
    with MailServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        monkeypatch.setattr(settings, "EMAIL_HOST", "127.0.0.1")
        monkeypatch.setattr(settings, "EMAIL_PORT", server.server_address[1])
        yield server
        server.shutdown()


def post(price):
    body = {"email": "ada@example.org", "price": price}
    return Client().post("/orders", body, content_type="application/json")


def test_an_order_and_its_mail(mail_server):
    answer = post(5)
    assert answer.status_code == 201
    Worker(shop.mails, shop.send).drain()
    mail = shop.mails.job(answer.json()["mail"])
    assert (mail.state, mail.result) == ("done", {"sent_to": "ada@example.org"})
    [sent] = mail_server.mails
    assert "To: ada@example.org" in sent


def test_an_order_that_is_refused_leaves_no_mail():
    before = shop.mails.stats().total, shop.Order.objects.count()
    assert post(0).status_code == 422
    assert (shop.mails.stats().total, shop.Order.objects.count()) == before


def test_the_summary_is_sent_at_its_tick(mail_server):
    [row] = shop.store.schedules("mails")
    a_week_us = 7 * 86_400 * 1_000_000
    shop.store.write_schedules("mails", [row._replace(next_at=row.next_at - a_week_us)])
    assert shop.mails.tick() == 1  # as the worker does each second
    assert shop.mails.tick() == 0
    Worker(shop.mails, shop.send).drain()
    [sent] = mail_server.mails
    assert "To: owner@example.org" in sent
