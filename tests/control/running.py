"""A function that runs until somebody interrupts it."""

import signal

import numpy as np
import pytest

timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")


def is_interrupted(function):
    """A function of an array that does not end is left at a signal, and leaves the array as it was."""

    def stop(*_):
        raise KeyboardInterrupt

    x = np.arange(4.0)
    old = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.5)
        with pytest.raises(KeyboardInterrupt):
            function(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    np.testing.assert_array_equal(x, np.arange(4.0))
