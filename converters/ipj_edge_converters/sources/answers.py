"""The child's side of `ipj_edge_converters.sources.apart`: answer questions until the pipe closes."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from ipj_edge.errors import first_line
from ipj_edge.protocols import Array
from ipj_edge_converters.sources.frames import receive, send

Answering = Callable[[dict[str, Any], dict[str, Array]], tuple[Mapping[str, Any], Mapping[str, Array]]]


def answer(pipe: int, cpu_s: int, reply: Answering) -> int:
    """Answer questions and return the exit code; an error that an engine raises is an answer with the fact ``error``.

    Args:
        pipe: Number of the pipe's file.
        cpu_s: Seconds of CPU time that each answer may take.
        reply: Makes facts and arrays of those of a question.
    """
    connection = Connection(pipe)
    while True:
        try:
            facts, arrays = receive(connection)
        except EOFError:
            return 0
        _renew(cpu_s)
        try:
            told, made = reply(facts, arrays)
        except Exception as error:  # noqa: BLE001  engines raise what they like
            told, made = {"error": first_line(error) or type(error).__name__}, {}
        send(connection, told, made)


def _renew(cpu_s: int) -> None:
    """Allow this process more CPU time than it has used: for one answer."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    spent = resource.getrusage(resource.RUSAGE_SELF)
    wanted = int(spent.ru_utime + spent.ru_stime) + cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
