"""Messages to and from a child process: each is a head in JSON and a body of bytes."""

import contextlib
import json
import math
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

from kesin.foundation.child_environment import child_environment
from kesin.foundation.clock import SystemClock
from kesin.foundation.messages import Message, parts_of, restore
from kesin.workloads.pdf.errors import DOCUMENT_TOO_COSTLY, PdfErrorCode, RenderFailed

_LENGTH: Final = struct.Struct(">Q")
_CHUNK_BYTES: Final = 1024 * 1024
_EXCEEDED: Final = "it was stopped: it needed more than %(n)s s of CPU time or %(most)s MiB of memory"
_MAX_REPLY_BYTES: Final = 256 * 1024 * 1024
_ALARM_AFTER_S: Final = 5


class ChildChannel:
    """One end; raises TimeoutError after a monotonic deadline, EOFError or OSError if cut off."""

    def __init__(self, connection: socket.socket, max_bytes: int = sys.maxsize) -> None:
        self.socket = connection
        self._max_bytes = max_bytes
        self._clock = SystemClock()

    def send(self, head: dict[str, Any], body: bytes = b"", deadline: float | None = None) -> None:
        text = json.dumps(head).encode()
        for part in (_LENGTH.pack(len(text)), text, _LENGTH.pack(len(body)), body):
            self._set_timeout(deadline)
            self.socket.sendall(part)

    def receive(self, deadline: float | None = None) -> tuple[dict[str, Any], bytes]:
        head = json.loads(self._receive_part(deadline))
        return head, self._receive_part(deadline)

    def send_file(self, file: int, deadline: float) -> None:
        """Hand over an open file, and wait until the other side has it."""
        self._set_timeout(deadline)
        socket.send_fds(self.socket, [b"."], [file])
        self.receive(deadline)

    def receive_file(self) -> int | None:
        """Wait for an open file and say so; None if the other side is gone."""
        sign, files, _, _ = socket.recv_fds(self.socket, 1, 1)
        if not sign:
            return None
        self.send({})
        return files[0]

    def close(self) -> None:
        self.socket.close()

    def _receive_part(self, deadline: float | None) -> bytes:
        (length,) = _LENGTH.unpack(self._receive_exactly(_LENGTH.size, deadline))
        if length > self._max_bytes:
            raise EOFError("the message is too long")
        return self._receive_exactly(length, deadline)

    def _receive_exactly(self, length: int, deadline: float | None) -> bytes:
        received = bytearray()
        while len(received) < length:
            self._set_timeout(deadline)
            chunk = self.socket.recv(min(length - len(received), _CHUNK_BYTES))
            if not chunk:
                raise EOFError("the process died")
            received += chunk
        return bytes(received)

    def _set_timeout(self, deadline: float | None) -> None:
        remaining_s = None if deadline is None else deadline - self._clock.monotonic()
        if remaining_s is not None and remaining_s <= 0:
            raise TimeoutError
        self.socket.settimeout(remaining_s)


class Child(ChildChannel):
    """A module of ours in a child process, which gets a socket and ends when our end is closed."""

    def __init__(self, module: str, max_bytes: int = sys.maxsize) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours, max_bytes)
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
        self.close()
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)


class ChildLimits(NamedTuple):
    """What a task in a child process may cost."""

    cpu_s: float
    wall_s: float
    memory_bytes: int

    def exceeded(self) -> Message:
        n, most = f"{self.cpu_s:g}", self.memory_bytes // (1024 * 1024)
        return Message(_EXCEEDED, n=n, most=most)


def set_limits(memory_bytes: int, cpu_s: float, wall_s: float) -> None:
    """Set the limits of this process; 0 seconds for none."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        memory_bytes = min(memory_bytes, most)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, most))
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)


Reply = tuple[dict[str, Any], bytes]
Perform = Callable[[dict[str, Any], bytes], Reply]


def run_in_child(module: str, head: dict[str, Any], body: bytes, limits: ChildLimits) -> Reply:
    """Let a module of ours perform one task; DOCUMENT_TOO_COSTLY if it used up its limits."""
    child, deadline = Child(module, _MAX_REPLY_BYTES), SystemClock().monotonic() + limits.wall_s
    try:
        child.send({**head, "limits": limits._asdict()}, body, deadline)
        reply, data = child.receive(deadline)
    except TimeoutError:
        why, n = "the document was not processed within %(n)s s", f"{limits.wall_s:g}"
        raise RenderFailed(PdfErrorCode.NAVIGATION_TIMEOUT, why, n=n) from None
    except (EOFError, OSError):
        raise RenderFailed(DOCUMENT_TOO_COSTLY, limits.exceeded()) from None
    finally:
        child.kill()
    if "code" in reply:
        raise_failure(reply)
    return reply, data


@contextlib.contextmanager
def parent_channel(max_bytes: int = sys.maxsize) -> Iterator[ChildChannel]:
    """Open the socket to the parent, the first argument, and stay until the parent closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with socket.socket(fileno=int(sys.argv[1])) as connection, contextlib.suppress(EOFError):
        yield ChildChannel(connection, max_bytes)


def serve_task(perform: Perform) -> None:
    """Perform the task of the parent within its limits."""
    with parent_channel() as channel:
        head, body = channel.receive()
        limits = ChildLimits(**head.pop("limits"))
        set_limits(limits.memory_bytes, limits.cpu_s, limits.wall_s)
        try:
            reply = perform(head, body)
        except RenderFailed as problem:
            reply = failure_head(problem), b""
        except MemoryError:
            reply = {"code": DOCUMENT_TOO_COSTLY, "message": limits.exceeded()}, b""
        channel.send(*reply)


def serve_tasks(channel: ChildChannel, perform: Perform) -> None:
    """Perform one task after another; the system's alarm ends one that its parent gave up."""
    while True:
        head, body = channel.receive()
        signal.alarm(math.ceil(head["limit_s"]) + _ALARM_AFTER_S)
        reply = perform(head, body)
        signal.alarm(0)
        channel.send(*reply)


def failure_head(problem: RenderFailed) -> dict[str, Any]:
    head = {"code": problem.code, "message": problem.message, "details": problem.details}
    return head | parts_of(problem.message)


def raise_failure(head: dict[str, Any]) -> NoReturn:
    message = restore(head["message"], head)
    raise RenderFailed(head["code"], message, details=head.get("details")) from None
