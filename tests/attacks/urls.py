"""Hostile URLs, the patterns that they try to pass, and where each leads."""

from __future__ import annotations

PATTERNS = {
    "a host": r"https://cdn\.example\.com/.*",
    "names below a domain": r"https?://[a-z0-9-]+\.example\.com/.*",
    "any name below a domain": r"https?://.*\.example\.com/.*",
    "anything with a port": r"https?://.*:8443/.*",
}
HOSTILE = [
    # A user name that looks like the host.
    "https://cdn.example.com@evil.test/",
    "https://cdn.example.com:8443@evil.test/",
    "https://cdn.example.com%40evil.test/",
    "https://evil.test@cdn.example.com/",
    "https://user:word@cdn.example.com:8443/",
    "https://cdn.example.com%2f@evil.test/",
    "https://@evil.test/.example.com/",
    # A host that begins or ends like the one that is allowed.
    "https://cdn.example.com.evil.test/",
    "https://cdn-example.com/",
    "https://cdnxexample.com/",
    "https://evilexample.com/",
    "https://cdn.example.com.:8443/",
    "https://cdn.example.com%00.evil.test/",
    "https://.example.com/",
    "https://a..example.com/",
    # The host in the path, the query or the fragment.
    "https://evil.test/cdn.example.com/",
    "https://evil.test/.example.com/",
    "https://evil.test?.example.com/",
    "https://evil.test#.example.com/",
    "https://evil.test/:8443/",
    "https://evil.test?:8443/",
    "https://evil.test;.example.com/",
    "https://evil.test&.example.com/",
    "https://evil.test%23.example.com/",
    # Backslashes, spaces and control characters.
    "https://evil.test\\.example.com/",
    "https://evil.test\\@cdn.example.com/",
    "https:\\\\cdn.example.com\\",
    "https://evil.test\t.example.com/",
    "https://cdn.example.com\n.evil.test/",
    " https://cdn.example.com/",
    "https://cdn.example.com /",
    "https://evil.test\0.example.com/",
    # Schemes, and URLs without one.
    "http://cdn.example.com:0/",
    "file://cdn.example.com/etc/passwd",
    "gopher://cdn.example.com:8443/_x",
    "javascript://cdn.example.com/%0aalert(1)",
    "data:text/html,https://cdn.example.com/",
    "//cdn.example.com/",
    "https:cdn.example.com/",
    "https:///cdn.example.com/",
    "jar:https://cdn.example.com/!/",
    # Addresses of this machine and its network, in every notation.
    "https://127.0.0.1:8443/",
    "https://127.1:8443/",
    "https://2130706433:8443/",
    "https://0x7f000001:8443/",
    "https://0177.0.0.1:8443/",
    "https://0:8443/",
    "https://[::1]:8443/",
    "https://[::ffff:127.0.0.1]:8443/",
    "https://[0:0:0:0:0:ffff:7f00:1]:8443/",
    "https://[64:ff9b::7f00:1]:8443/",
    "https://[fe80::1%25lo]:8443/",
    "https://169.254.169.254:8443/latest/meta-data/",
    "https://10.0.0.1:8443/",
    "https://localhost:8443/",
    "https://metadata.google.internal:8443/",
    "https://db:8443/",
    # Letters that fold into others, and paths that lead back.
    "https://cdn.ex\u0430mple.com/",
    "https://cdn\u3002example\u3002com/",
    "https://\uff45vil.example.com/",
    "https://\u2488.example.com:8443/",
    "https://cdn.example.com/../../admin",
    "https://cdn.example.com/%2e%2e/admin",
]
assert len(HOSTILE) == 63
HARMLESS = {  # so that a list that refuses everything fails
    "a host": "https://cdn.example.com/logo.png?x=1#y",
    "names below a domain": "http://a-b.example.com/",
    "any name below a domain": "https://a.b.example.com/x",
    "anything with a port": "https://hooks.example.net:8443/x",
}
# These pass, and lead where the pattern says.
LEGAL: set[tuple[str, str]] = set()
# Names and numbers that the resolver of this machine takes for loopback.
INWARD = [
    *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "localhost"),
    *("[::1]", "[::ffff:127.0.0.1]", "[::]", "0.0.0.0"),
]
