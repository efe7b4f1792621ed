"""Shortens the pauses of a client between two looks at a job; its stop watch goes on as though they had been whole."""

import time

_sleep, _monotonic = time.sleep, time.monotonic
_spared = 0.0


def _briskly(seconds):
    global _spared
    pause = min(seconds, 0.5)
    _sleep(pause)
    _spared += seconds - pause


time.sleep = _briskly
time.monotonic = lambda: _monotonic() + _spared
