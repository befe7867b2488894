"""A webhook goes to the address that was checked, within its time, and nowhere else."""

import datetime as dt
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kesin.foundation.clock import SystemClock
from kesin.lifecycle.model import Job
from kesin.web.dashboard.frame.i18n import translate
from kesin.workloads.pdf.safe_fetch import FetchRefused, fetch
from kesin.workloads.pdf.webhooks import worker
from kesin.workloads.pdf.webhooks.worker import Subscription, deliver, post
from tests.web.dashboard.turkish import catalogue
from tests.workloads.receiver import Receiver, hang_up, nonsense, receiving, silence, trickle

PUBLIC = "93.184.216.34"
NAME = "hooks.example.com"


@pytest.fixture
def claimed(small, receiver) -> Job:
    """A delivery in the hands of a worker."""
    small.ready(receiver)
    small.sender().scan()
    return small.queue.claim("test")[0]


def deliver_to(claimed: Job, url: str) -> Any:
    return deliver(claimed, Subscription("job", "x", url), b"{}", {}, SystemClock())


def body_that_trickles(request: Any) -> None:
    """A good answer, and then a body a byte at a time."""
    try:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not request.server.over.wait(0.02):
            request.wfile.write(b"x")
    except OSError:
        pass


def test_no_response_in_time_is_unreachable(claimed, receiver, monkeypatch):
    monkeypatch.setattr(worker, "TIMEOUT_S", 0.3)
    receiver.script = [*(acts := (hang_up, nonsense, silence, trickle))]
    for tried, act in enumerate(acts, 1):
        result = deliver_to(claimed, receiver.url)
        assert (result.code, len(receiver.came)) == ("HOOK_UNREACHABLE", tried), act
        assert (result.message == "no response came in time") == (act in (silence, trickle)), act


def test_what_became_of_a_delivery_is_said_in_turkish(claimed, receiver, monkeypatch):
    monkeypatch.setattr(worker, "TIMEOUT_S", 0.3)
    for answer, turkish in (
        (silence, "tanınan sürede yanıt gelmedi"),
        (500, "alıcı, 500 durum koduyla yanıt verdi"),
        ((429, {"Retry-After": "3600"}), "alıcı, 429 durum koduyla yanıt verdi ve 3600 sn beklenmesini istedi"),
    ):
        receiver.script = [answer]
        assert translate(catalogue(), deliver_to(claimed, receiver.url).message) == turkish


def test_an_address_that_is_not_allowed_is_refused_in_turkish(claimed):
    for url in ("http://[", "ftp://a.example/", "http://user@a.example/"):
        result = deliver_to(claimed, url)
        assert result.code == "HOOK_REFUSED", url
        assert translate(catalogue(), result.message) is not None, url


def test_a_good_answer_is_one_whatever_comes_after_it(receiver, monkeypatch):
    receiver.script = [body_that_trickles]
    assert post(receiver.url, b"{}", {})[0] == 200


def test_a_closed_port_is_unreachable(claimed):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        result = deliver_to(claimed, f"http://127.0.0.1:{taken.getsockname()[1]}/hook")
    assert result.code == "HOOK_UNREACHABLE"
    assert "127.0.0.1" not in result.message


# Names


class Names:
    """A scripted name server, which records the connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[list[str]] = []
        self.resolved: list[str] = []
        self.called: list[str] = []
        monkeypatch.setattr(socket, "getaddrinfo", self.look_up)
        monkeypatch.setattr(socket, "create_connection", self.call)

    def look_up(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        self.resolved.append(host)
        addresses = self.answers.pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (entry, port)) for entry in addresses]

    def call(self, address: tuple[str, int], *_: Any) -> socket.socket:
        self.called.append(address[0])
        raise ConnectionRefusedError("nobody is there")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


def test_a_public_name_that_leads_inside_is_refused(claimed, names):
    inside = [["127.0.0.1"], ["10.0.0.5"], ["169.254.169.254"], [PUBLIC, "10.0.0.5"], ["::1"]]
    for addresses in inside:
        names.answers = [addresses]
        result = deliver_to(claimed, f"https://{NAME}/x")  # though the list spells it out
        assert (result.code, names.called) == ("HOOK_REFUSED", [])
        assert translate(catalogue(), result.message) == "adres, internete açık bir adres değil"


def test_a_name_is_resolved_once(claimed, names):
    names.answers = [[PUBLIC], ["127.0.0.1"]]
    result = deliver_to(claimed, f"https://{NAME}/x")
    assert result.code == "HOOK_UNREACHABLE"
    assert (names.resolved, names.called) == ([NAME], [PUBLIC])


def test_every_address_of_a_name_is_tried(claimed, names):
    names.answers = [[PUBLIC, "93.184.216.35", PUBLIC]]
    assert deliver_to(claimed, f"https://{NAME}/x").code == "HOOK_UNREACHABLE"
    assert names.called == [PUBLIC, "93.184.216.35"]


def test_an_unknown_name_is_unreachable(claimed, monkeypatch):
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert deliver_to(claimed, f"https://{NAME}/x").code == "HOOK_UNREACHABLE"


def test_a_private_address_needs_the_list(small, receiver):
    assert small.hooks.allows(receiver.url)
    with pytest.raises(FetchRefused, match="is not public"):
        fetch(receiver.url)  # documents have no such list
    assert post(receiver.url, b"{}", {})[0] == 200


# TLS


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for localhost, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    day = dt.timedelta(days=1)
    start = dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + 36_500 * day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path.write_bytes(certificate.public_bytes(pem) + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return path


@pytest.fixture
def secure(certificate) -> Iterator[Receiver]:
    with receiving() as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        yield server


def test_a_receiver_must_prove_its_name(claimed, secure, certificate, monkeypatch):
    url = f"https://localhost:{secure.server_port}/hook?a=b"
    unknown = deliver_to(claimed, url)
    assert unknown.code == "HOOK_UNREACHABLE"
    assert "certificate" in unknown.message
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    other_name = deliver_to(claimed, f"https://127.0.0.1:{secure.server_port}/hook")
    assert other_name.code == "HOOK_UNREACHABLE"
    assert secure.came == []
    assert deliver_to(claimed, url).result["status"] == 200
    (request,) = secure.came
    assert request.path == "/hook?a=b"
    assert request.headers["Host"] == f"localhost:{secure.server_port}"
