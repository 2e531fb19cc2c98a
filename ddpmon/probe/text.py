"""Text of the user's that is to cross the store."""

from __future__ import annotations

from typing import Any


def plain(text: Any, most: int = 256) -> str:
    """At most `most` characters that can be encoded, whatever was given; the type's name for what is no text."""
    try:
        return str(text)[:most].encode("utf-8", "replace").decode()
    except Exception:
        return type(text).__name__[:most]
