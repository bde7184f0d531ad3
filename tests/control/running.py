"""Ways to run a function: in several threads at once, and until somebody interrupts it."""

import signal
import threading

import numpy as np
import pytest

timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")


def in_threads(count, run):
    """The results of `run(k)` for k below `count`, each in a thread of its own."""
    found = [None] * count

    def keep(k):
        found[k] = run(k)

    workers = [threading.Thread(target=keep, args=(k,)) for k in range(count)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return found


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
