"""Inputs that have broken other programs, each with the kind of mistake that it looks for."""

from __future__ import annotations

PRODUCT = 7919 * 7907  # a template that computes shows it
SUM = "7919*7907"

INJECTIONS: dict[str, list[str]] = {
    "SQL": [
        "' or '1'='1",
        "' or 1=1--",
        "'; drop table job; --",
        '" or ""="',
        "1) union select name, password_hash from person--",
        "'||(select hash from session limit 1)||'",
        "'; select pg_sleep(120); --",
        "%' or tenant like '%",
    ],
    "template": [f"{{{{{SUM}}}}}", f"${{{SUM}}}", f"<%= {SUM} %>", "{% include '/etc/passwd' %}"],
    "format string": ["%s%s%s%n%x", "%(password)s", "{0.__class__.__mro__}"],
    "path traversal": [
        "../../../../../../etc/passwd",
        "..%2f..%2f..%2f..%2fetc%2fpasswd",
        "....//....//....//etc/passwd",
        "/etc/passwd",
        "..\\..\\..\\windows\\win.ini",
        "%c0%ae%c0%ae%c0%afetc%c0%afpasswd",
    ],
    "NUL": ["\0", "kesin.db\0.png"],
    "header": [
        "x\r\nset-cookie: kesin_session=fixed",
        "x%0d%0ax-injected:%20yes",
        "x\r\n\r\nHTTP/1.1 200 OK\r\nx-injected: yes\r\n\r\n",
    ],
    "unicode": ["\u202e\ufeff\u2028", "\uff1cscript\uff1ekesin()\uff1c/script\uff1e", "\ud800"],
    "shell": ["; id", "$(id)", "| cat /etc/passwd"],
    "LDAP": ["*)(uid=*))(|(uid=*"],
    "XPath": ["' or count(/*)=1 or 'a'='b"],
    "XML": ['<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>'],
    "JSON": ['{"$ne": null}', "[" * 2_000],
    "markup": ["<script>kesin()</script>", "\"'><img src=x onerror=kesin()>"],
}
PATTERNS = [(kind, text) for kind, texts in INJECTIONS.items() for text in texts]
assert len(PATTERNS) == 39

# What a pattern would bring to light if it worked.
EVIDENCE = (
    *(str(PRODUCT), "root:x:0:", "uid=0(", "gid=", "[extensions]", "SQLite format 3"),
    *("<class '", "$argon2", "pg_catalog", "syntax error at", 'near "', "unterminated"),
)

CALL = "window.ran=1;alert(1)"
# Texts that run somewhere, if a page takes them for markup, for an attribute or for a script.
SCRIPTS = [
    f"\"'><img src=x onerror={CALL}><script>{CALL}</script>",
    f"</textarea></title></script><svg onload={CALL}>",
    f"{{{{constructor.constructor('{CALL}')()}}}}<b hx-on:load='{CALL}'>",
    f"<script>{CALL}</script>",
    f"<ScRiPt >{CALL}</sCrIpT >",
    f"<img src=x onerror={CALL}>",
    f"<img/src=`x`onerror={CALL}>",
    f"<svg/onload={CALL}>",
    f"<svg><animate onbegin={CALL} attributeName=x dur=1s>",
    f"<body onload={CALL}>",
    f"<details open ontoggle={CALL}>",
    f"<input autofocus onfocus={CALL}>",
    f"<video><source onerror={CALL}></video>",
    f"<iframe srcdoc='<script>parent.{CALL}</script>'></iframe>",
    f"<a href=javascript:{CALL} id=x>x</a>",
    f"javascript:{CALL}//",
    f'" onmouseover="{CALL}" autofocus onfocus="{CALL}',
    f"' style='animation-name:x' onanimationstart='{CALL}",
    f"`-{CALL}-`",
    f'\\";{CALL}//',
    f"</script><script>{CALL}</script>",
    f"<!--><script>{CALL}</script>-->",
    f"&lt;script&gt;{CALL}&lt;/script&gt;",
    f"<math><mtext><table><mglyph><style><img src=x onerror={CALL}>",
    f"<div hx-get=/api/session hx-trigger=load hx-on::after-request='{CALL}'>",
    f"<base href=//evil.test/><link rel=stylesheet href=//evil.test/x.css>{CALL}",
]
