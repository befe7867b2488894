"""The shop's tests: a real file, no server, no waiting."""

import importlib
import socketserver
import threading

import pytest
from fastapi.testclient import TestClient

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


@pytest.fixture
def mail_server(monkeypatch):
    with MailServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        monkeypatch.setenv("MAIL_SERVER", f"127.0.0.1:{server.server_address[1]}")
        yield server
        server.shutdown()


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.setenv("KESIN_DATABASE_URL", str(tmp_path / "shop.db"))
    import shop

    return importlib.reload(shop)


def test_an_order_and_its_mail(shop, mail_server):
    answer = TestClient(shop.app).post("/orders", json={"email": "ada@example.org", "price": 5})
    assert answer.status_code == 201
    Worker(shop.mails, shop.send).drain()
    mail = shop.mails.job(answer.json()["mail"])
    assert (mail.state, mail.result) == ("done", {"sent_to": "ada@example.org"})
    [sent] = mail_server.mails
    assert "To: ada@example.org" in sent


def test_a_mail_is_retried_while_the_server_is_unreachable(shop, mail_server):
    mail_server.server_close()
    job = shop.mails.enqueue(shop.Mail(to="ada@example.org"))
    Worker(shop.mails, shop.send).drain()
    assert shop.mails.job(job.id).state == "ready"


def test_an_order_that_is_refused_leaves_no_mail(shop):
    answer = TestClient(shop.app).post("/orders", json={"email": "ada@example.org", "price": 0})
    assert answer.status_code == 422
    assert shop.mails.stats().total == 0
    with shop.Session(shop.engine) as session:
        assert session.query(shop.Order).count() == 0


def test_a_mail_without_an_address_is_not_retried(shop):
    job = shop.mails.enqueue(shop.Mail(to="nowhere"))
    Worker(shop.mails, shop.send).drain()
    assert shop.mails.job(job.id).error_code == "NO_ADDRESS"


def test_the_summary_is_sent_at_its_tick(shop, mail_server):
    [row] = shop.store.schedules("mails")
    a_week_us = 7 * 86_400 * 1_000_000
    shop.store.write_schedules("mails", [row._replace(next_at=row.next_at - a_week_us)])
    assert shop.mails.tick() == 1  # as the worker does each second
    assert shop.mails.tick() == 0
    Worker(shop.mails, shop.send).drain()
    [mail] = shop.mails.jobs().jobs
    assert mail.dedup_key.startswith("summary@")
    assert (mail.state, mail.result) == ("done", {"sent_to": "owner@example.org"})
    assert len(mail_server.mails) == 1
