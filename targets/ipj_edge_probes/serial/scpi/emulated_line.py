"""What emulated SCPI instruments share: lines in, answers out, an error queue."""

from __future__ import annotations

from collections import deque
from typing import Protocol

UNDEFINED_HEADER = '-113,"Undefined header"'
NO_ERROR = '0,"No error"'


class Language(Protocol):
    """The words of an instrument."""

    def obey(self, command: str, now_s: float) -> str | None:
        """Carry out a command in upper case and return its answer, "" for none, None when it is unknown."""


class ScpiTalk:
    """Cuts bytes into commands and keeps the error queue.

    Args:
        language: The instrument's words.
        identity: Answer to ``*IDN?``.
    """

    def __init__(self, language: Language, identity: str) -> None:
        self._language = language
        self._identity = identity
        self._input = b""
        self._errors: deque[str] = deque()

    def receive(self, data: bytes, now_s: float) -> bytes:
        """Answer whole lines; an unknown command goes to the error queue and has no answer."""
        *lines, self._input = (self._input + data).split(b"\n")
        answers = [self._answer(line.decode("ascii", "replace").strip().upper(), now_s) for line in lines]
        return b"".join(answer.encode() + b"\r\n" for answer in answers if answer)

    def _answer(self, command: str, now_s: float) -> str:
        if not command:
            return ""
        if command == "*IDN?":
            return self._identity
        if command.lstrip(":") in ("SYST:ERR?", "SYSTEM:ERROR?", "STATUS:ERROR?"):
            return self._errors.popleft() if self._errors else NO_ERROR
        answer = self._language.obey(command, now_s)
        if answer is None:
            self._errors.append(UNDEFINED_HEADER)
        return answer or ""
