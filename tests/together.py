"""Threads that begin together."""

import threading
from concurrent.futures import ThreadPoolExecutor


def in_threads(count, run):
    """The results of `run(k)` for k below `count`, each in a thread of its own; what one of them raises is raised here."""
    begin = threading.Barrier(count)

    def one(k):
        begin.wait()
        return run(k)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))
