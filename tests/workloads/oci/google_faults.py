"""What the fake Google does with a request instead of answering it."""

from tests.workloads.oci.fake_google import Handler
from tests.workloads.oci.google_library import VERSION


def silence(handler: Handler) -> None:
    """Take the request and never answer."""
    handler.google.over.wait(20)


def hang_up(handler: Handler) -> None:
    """Close the connection without a response."""


def cut_off(handler: Handler) -> None:
    """Send the start of a successful response, then close."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b'{"results":[{"gcl')


def without_end(handler: Handler) -> None:
    """Send a response in small pieces, without end."""
    try:
        over = handler.google.over
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not over.wait(0.01):
            handler.wfile.write(b" ")
    except OSError:
        pass


def nonsense(handler: Handler) -> None:
    """Send something that is not HTTP."""
    handler.wfile.write(b"220 mail.example.com ESMTP\r\n")


def recorded_but_cut_off(handler: Handler) -> None:
    """Record everything, then cut off the response."""
    google = handler.google
    google._upload(VERSION, google.account, google.came[-1])
    cut_off(handler)
