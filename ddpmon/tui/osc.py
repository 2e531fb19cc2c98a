"""What is said to the terminal besides pictures: the clipboard, a notification, and which background it has.

All of it are OSC sequences. tmux keeps them to itself; there they also go out in its passthrough form, which tmux hands
on if `allow-passthrough` is on.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

_ESC, _BEL, _ST = "\x1b", "\a", "\x1b\\"
BACKGROUND_QUERY = f"{_ESC}]11;?{_ST}"
_ANSWER = re.compile(r"\x1b\]11;([^\x07\x1b]*)(?:\x07|\x1b\\)")
# What a terminal answers to somebody's question about itself: `ESC [ ? 6 2 ; c`, or a string such as `ESC P > | name`.
# No key begins like that. The answer about a mode, which Textual asks for and understands, has a `$`.
_NUMBERS, _STRING = r"\[[?>=][\d;:]{0,64}", r"(?:\]\d{1,4};|P[\d!$+>|]|_G)[^\x07\x1b]{0,256}"
_REPORT = re.compile(rf"\x1b(?:{_NUMBERS}[A-Za-z]|{_STRING}(?:\x07|\x1b\\))")
# The beginnings of an answer that may be keys: Esc, or `[`, `]`, `P` or `_` pressed with Alt, and what is typed then.
_KEYS = r"\x1b(?:\[[?>=]?|\]\d{0,4}|[P_])?"
_MAY_BE_KEYS, _BEGUN = re.compile(_KEYS), re.compile(rf"(?:{_KEYS}|\x1b{_NUMBERS}|\x1b{_STRING}\x1b?)\Z")
_KEY_S = 0.02  # in which a key's other bytes follow its Esc. Textual waits for another 0.1 s.
_ANSWER_S = 0.2  # in which the rest of an answer follows, also over ssh: it is written at once. Chosen, not measured.
_RGB = re.compile(r"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})", re.IGNORECASE)
_TEXT_LONGEST = 200


def in_tmux(environ: Mapping[str, str]) -> bool:
    """Whether a tmux stands between us and the terminal."""
    return bool(environ.get("TMUX"))


def _passed(sequence: str, environ: Mapping[str, str]) -> str:
    """The sequence, and in tmux once more in the form that tmux hands on."""
    if not in_tmux(environ):
        return sequence
    return f"{sequence}{_ESC}Ptmux;{sequence.replace(_ESC, _ESC * 2)}{_ST}"


def clipboard(text: str, environ: Mapping[str, str]) -> str:
    """Puts text into the clipboard of the terminal (OSC 52)."""
    return _passed(f"{_ESC}]52;c;{base64.b64encode(text.encode()).decode()}{_BEL}", environ)


def notification(text: str, environ: Mapping[str, str]) -> str:
    """Shows a notification on the desktop: OSC 777 where the terminal is known for it, else OSC 9.

    One of both, since terminals that know both would show it twice.
    """
    words = re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text)[:_TEXT_LONGEST]
    is_777 = environ.get("VTE_VERSION") or environ.get("TERM", "").startswith(("rxvt", "foot"))
    body = f"777;notify;ddpmon;{words.replace(';', ',')}" if is_777 else f"9;{words}"
    return _passed(f"{_ESC}]{body}{_BEL}", environ)


def can_be_asked(environ: Mapping[str, str]) -> bool:
    """Whether the terminal may be asked for its background: a console and a dumb terminal would print the question."""
    return environ.get("TERM", "dumb") not in ("dumb", "linux", "")


def is_dark(answer: str) -> bool | None:
    """Whether `rgb:1e1e/1e1e/1e1e` is a dark colour; None for an answer of another form."""
    match = _RGB.fullmatch(answer)
    if match is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in match.groups())
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue  # the weights of Rec. 709
    return bool(light < 0.5)


class Answers:
    """Takes what the terminal tells of itself out of what it sends, such as its answer to `BACKGROUND_QUERY`.

    The rest are keys and mouse. Textual does not know these answers and would press their letters: `[` goes back in
    time, and `?` opens the help.

    Attributes:
        background: the last answer to `BACKGROUND_QUERY`, None before the first.
    """

    def __init__(self) -> None:
        self.background: str | None = None
        self._held = ""

    @property
    def wait_s(self) -> float | None:
        """How long to wait for more of what may be keys; None where nothing is held back that may be."""
        if not _MAY_BE_KEYS.fullmatch(self._held):
            return None
        return _KEY_S if len(self._held) <= len("\x1b[") else _ANSWER_S

    def take(self, text: str) -> str:
        """What remains of the text; the beginning of an answer is held back until more comes."""
        text, self._held = self._held + text, ""
        for match in _ANSWER.finditer(text):
            self.background = match[1]
        text = _REPORT.sub("", text)
        begun = _BEGUN.search(text)
        if begun is not None:
            text, self._held = text[: begun.start()], begun[0]
        return text

    def release(self) -> str:
        """The keys that were held back in vain; what can only be an answer stays, however late its end comes."""
        if not _MAY_BE_KEYS.fullmatch(self._held):
            return ""
        keys, self._held = self._held, ""
        return keys
