"""The shipped script sends only fields that the service knows: nothing of a run is refused."""

from tests.workloads.oci.running import Running, changed, sales
from tests.workloads.oci.script import ACK, ACK_FAILED, EXPORT, HEARTBEAT, VERIFY, Script


def test_every_request_of_a_run_is_taken(server: Running, script: Script):
    """The script goes on without a token or a heartbeat, so a refusal of these would not show."""
    server.enqueue(*sales(2))
    script.rewrite = changed({}, {"conversionTime": "yesterday"})
    script.run()
    assert {request.path for request in script.requests} == {*(VERIFY, EXPORT, ACK, ACK_FAILED, HEARTBEAT)}
    assert {request.status for request in script.requests} == {200}
    assert server.heartbeat() is not None
