"""How often a function is traced while shapes change."""

import sparsejax as sj


class Traced:
    """A function under `jit` that counts its traces."""

    def __init__(self, function):
        def counted(*args):
            self.traces += 1
            return function(*args)

        self.traces = 0
        self.jitted = sj.jit(counted)

    def __call__(self, *args):
        return self.jitted(*args)
