"""Ctrl-C that waits for the end of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class CtrlC:
    """The first Ctrl-C is noted until `obey` is called; the second does what it always did."""

    def __init__(self) -> None:
        self.pressed = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        before = signal.getsignal(signal.SIGINT)
        # Threads cannot say what a signal does, and what ignores Ctrl-C goes on ignoring it.
        if threading.current_thread() is not threading.main_thread() or not callable(before):
            yield
            return

        def note(number: int, frame: FrameType | None) -> Any:
            self.pressed = True
            signal.signal(number, before)

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def obey(self) -> None:
        if self.pressed:
            self.pressed = False
            raise KeyboardInterrupt
