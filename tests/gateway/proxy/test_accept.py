"""Which form a caller reads a problem in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.accept import LONGEST, MOST, Form, preferred

BROWSER = b"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, Form.JSON),
        (b"", Form.JSON),
        (b"*/*", Form.JSON),
        (b"application/json", Form.JSON),
        (b"application/problem+json", Form.JSON),
        (b"application/*", Form.JSON),
        (b"image/png", Form.JSON),
        (b"text/html", Form.HTML),
        (b"TEXT/HTML; Level=1", Form.HTML),
        (BROWSER, Form.HTML),
        (b"text/markdown", Form.MARKDOWN),
        (b"text/*", Form.MARKDOWN),
        (b"text/*, text/markdown;q=0.1", Form.HTML),
        (b"text/html;q=0.5, application/json", Form.JSON),
        (b"text/html;q=0.5, application/json;q=0.4", Form.HTML),
        (b"text/html, application/json", Form.JSON),
        (b"text/markdown;q=0.9, text/html;q=0.8, */*;q=0.1", Form.MARKDOWN),
        (b"*/*;q=0.5, application/json;q=0, text/markdown;q=0.2", Form.HTML),
        (b"text/html;q=0", Form.JSON),
        (b"text/html;q=2", Form.JSON),
        (b"text/html;q=", Form.JSON),
        (b"text/html;q=0.1234", Form.JSON),
        (b"text/html ; Q=0.123", Form.HTML),
        (b";;;,,,q=1", Form.JSON),
        (b"\xff\xfe/\x80", Form.JSON),
        (b"a/b," * MOST + b"text/html", Form.JSON),
        (b"a/b;c=" + b"x" * LONGEST + b", text/html", Form.JSON),
    ],
)
def test_the_form_that_is_preferred(accept: bytes | None, form: Form) -> None:
    """Weights and closeness decide, JSON wins a tie, and what cannot be read counts for nothing."""
    assert preferred(accept) is form


@given(st.binary(max_size=300))
def test_any_octets_have_a_form(accept: bytes) -> None:
    """An error answer is never itself an error."""
    assert preferred(accept) in Form
