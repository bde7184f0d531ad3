"""Operations of a table that are joined: words after a run are what they are without joining."""

import random

import pytest

from sparsejax.jit.runtime.whole import merging
from sparsejax.jit.runtime.whole.driver import ADD, COPY, HALT, JUMP, SET, UNLESS

WORDS = 12


def run(ops, words, steps=60):
    """What COPY, SET, ADD, UNLESS (on the number of a word) and JUMP do to words, and which operations were failures."""
    words, at = list(words), 0
    for _ in range(steps):
        code, x, y, n, _ = ops[at]
        at += 1
        if code == HALT:
            break
        if code == COPY:
            for k in range(n):
                words[x + k] = words[y + k]
        elif code == SET:
            words[x : x + n] = [y] * n
        elif code == ADD:
            words[x] += words[y]
        elif code == JUMP or words[x] % 2 == 0:
            at = y
    return words


@pytest.mark.parametrize("seed", range(40))
def test_words_are_the_same(seed):
    rng = random.Random(seed)
    count, ops = 25, []
    for _ in range(count):
        code = rng.choice([COPY, COPY, COPY, SET, SET, ADD, UNLESS, JUMP])
        x, y = rng.randrange(WORDS - 3), rng.randrange(WORDS - 3)
        if ops and ops[-1][0] == code and code in (COPY, SET) and rng.random() < 0.7:  # mostly those that may be joined
            before = ops[-1]
            if before[1] + before[3] < WORDS - 3 and before[2] + before[3] < WORDS - 3:
                x, y = before[1] + before[3], before[2] + before[3] if code == COPY else before[2]
        forward = rng.randrange(len(ops) + 1, count + 1)
        size = 1 if code == SET else rng.randint(1, 3)
        ops.append([code, x, forward if code in (UNLESS, JUMP) else y, size, 0])
    ops.append([HALT, 0, 0, 0, 0])
    words = [rng.randrange(10) for _ in range(WORDS)]
    joined, _ = merging.merged(ops, {})
    assert run(joined, words) == run(ops, words)


def test_numbers_follow():
    """Of what is jumped to, and of what raises."""
    ops = [
        [COPY, 0, 4, 1, 0],
        [COPY, 1, 5, 2, 0],
        [ADD, 0, 1, 0, 0],
        [SET, 1, 0, 1, 0],
        [SET, 2, 0, 1, 0],
        [JUMP, 0, 2, 0, 0],
    ]
    joined, failures = merging.merged(ops, {2: len, 5: repr})
    assert joined == [[COPY, 0, 4, 3, 0], [ADD, 0, 1, 0, 0], [SET, 1, 0, 2, 0], [JUMP, 0, 1, 0, 0]]
    assert failures == {1: len, 3: repr}
    assert ops[-1] == [JUMP, 0, 2, 0, 0]
