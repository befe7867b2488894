"""Messages to and from a child process: each is a head in JSON and a body of bytes."""

import contextlib
import json
import socket
import struct
import subprocess
import sys
from typing import Any, Final, NoReturn

from kesin.foundation.child_environment import child_environment
from kesin.foundation.clock import SystemClock
from kesin.foundation.messages import parts_of, restore
from kesin.workloads.pdf.errors import RenderFailed

_LENGTH: Final = struct.Struct(">Q")
_CHUNK_BYTES: Final = 1024 * 1024
_EXIT_WAIT_S: Final = 5.0


class ChildChannel:
    """One end; raises TimeoutError after a monotonic deadline, EOFError or OSError if cut off."""

    def __init__(self, connection: socket.socket, max_bytes: int) -> None:
        self._socket = connection
        self._max_bytes = max_bytes
        self._clock = SystemClock()

    def send(self, head: dict[str, Any], body: bytes = b"", deadline: float | None = None) -> None:
        text = json.dumps(head).encode()
        for part in (_LENGTH.pack(len(text)), text, _LENGTH.pack(len(body)), body):
            self._set_timeout(deadline)
            self._socket.sendall(part)

    def receive(self, deadline: float | None = None) -> tuple[dict[str, Any], bytes]:
        head = json.loads(self._receive_part(deadline))
        return head, self._receive_part(deadline)

    def send_file(self, file: int, deadline: float) -> None:
        """Hand over an open file, and wait until the other side has it."""
        self._set_timeout(deadline)
        socket.send_fds(self._socket, [b"."], [file])
        self.receive(deadline)

    def receive_file(self) -> int | None:
        """Wait for an open file and say so; None if the other side is gone."""
        sign, files, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not sign:
            return None
        self.send({})
        return files[0]

    def close(self) -> None:
        self._socket.close()

    def _receive_part(self, deadline: float | None) -> bytes:
        (length,) = _LENGTH.unpack(self._receive_exactly(_LENGTH.size, deadline))
        if length > self._max_bytes:
            raise EOFError("the message is too long")
        return self._receive_exactly(length, deadline)

    def _receive_exactly(self, length: int, deadline: float | None) -> bytes:
        received = bytearray()
        while len(received) < length:
            self._set_timeout(deadline)
            chunk = self._socket.recv(min(length - len(received), _CHUNK_BYTES))
            if not chunk:
                raise EOFError("the process died")
            received += chunk
        return bytes(received)

    def _set_timeout(self, deadline: float | None) -> None:
        remaining_s = None if deadline is None else deadline - self._clock.monotonic()
        if remaining_s is not None and remaining_s <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining_s)


class Child:
    """A module of ours in a child process, which gets a socket and ends when our end is closed."""

    def __init__(self, module: str) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.socket.close()
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_EXIT_WAIT_S)


def failure_head(problem: RenderFailed) -> dict[str, Any]:
    head = {"code": problem.code, "message": problem.message, "details": problem.details}
    return head | parts_of(problem.message)


def raise_failure(head: dict[str, Any]) -> NoReturn:
    message = restore(head["message"], head)
    raise RenderFailed(head["code"], message, details=head.get("details")) from None
