"""What the nameless send that can't be read: refused in one line of the log, without a trace."""

import pytest

from tests.server import Server

FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data"
MANY = "&".join(f"a{number}=b" for number in range(1_500))
FILES = b"".join(
    b'--x\r\nContent-Disposition: form-data; name="a%d"; filename="f"\r\n\r\nf\r\n' % number
    for number in range(300)
)
FORMS = {
    **{
        encoding: (f"{FORM}; charset={encoding}", b"username=%ff&password=+AGE-")
        for encoding in ("utf-7", "utf-16", "utf-8-sig", "idna", "hex", "unicode_escape", "cp037")
    },
    "many fields": (FORM, MANY.encode()),
    "parts without a boundary": (PARTS, b"x"),
    "many files": (f"{PARTS}; boundary=x", FILES + b"--x--"),
    "a part of no base64": (
        f"{PARTS}; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="a"; filename="f"\r\n'
        b"Content-Transfer-Encoding: base64\r\n\r\n!a\r\n--x--",
    ),
}
LINE_LIMIT_CHARS = 400


def assert_refused_in_a_line(server: Server, path: str, **asked) -> None:
    begun = len(server.log.read_text())
    status, headers, body = server.call(path, **asked)
    assert status in (400, 403)
    assert "content-security-policy" in headers
    assert b"<h1" in body
    logged = server.log.read_text()[begun:]
    assert "Traceback" not in logged
    assert len(logged) < LINE_LIMIT_CHARS


@pytest.mark.parametrize(("content_type", "body"), FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("path", ["/login", "/logout", "/act/set_tenant"])
def test_a_form_that_can_not_be_read(server: Server, path: str, content_type: str, body: bytes):
    assert_refused_in_a_line(server, path, body=body, headers={"content-type": content_type})


@pytest.mark.parametrize("path", ["/login", "/now", "/receipts"])
def test_a_query_that_can_not_be_read(server: Server, path: str):
    assert_refused_in_a_line(server, f"{path}?{MANY}")
