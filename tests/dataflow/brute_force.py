"""The oracle of the simulator: dense arrays, loops over tiles as written, every stored word built and counted."""

import itertools

import numpy as np


def csf_words(block):
    """Words of the arrays of a compressed sparse fiber tree, which are built level by level; 0 without entries."""
    points = sorted(map(tuple, np.argwhere(block)))
    if not points:
        return 0
    words = []
    parents = [()]
    for level in range(block.ndim):
        children = [sorted({p[level] for p in points if p[:level] == above}) for above in parents]
        words += list(itertools.accumulate(map(len, children), initial=0))  # segments
        words += [c for cs in children for c in cs]
        parents = [(*above, c) for above, cs in zip(parents, children, strict=True) for c in cs]
    return len(words) + len(points)


def traffic(arrays, inputs, output, order, levels):
    """Words per operand and of the output, for each of several levels of tiles (outermost first)."""
    extents = {v: n for a, vs in zip(arrays, inputs, strict=True) for v, n in zip(vs, a.shape, strict=True)}
    arrays = [a != 0 for a in arrays]
    arrays = [a.transpose([vs.index(v) for v in order if v in vs]) for a, vs in zip(arrays, inputs, strict=True)]
    stored = [[v for v in order if v in vs] for vs in inputs]
    result = [v for v in order if v in output]
    return [_level(arrays, stored, result, extents, order, levels[: k + 1]) for k in range(len(levels))]


def _level(arrays, stored, result, extents, order, levels):
    loops = [(v, tiles[v]) for tiles in levels for v in order]
    lasts = [max((k for k, (v, _) in enumerate(loops) if v in vs), default=-1) for vs in (*stored, result)]
    fetched = [0] * len(arrays)
    seen = [set() for _ in arrays]
    partial = {}
    for at in itertools.product(*(range(-(-extents[v] // t)) for v, t in loops)):
        spans = {v: slice(0, n) for v, n in extents.items()}
        for (v, t), c in zip(loops, at, strict=True):
            spans[v] = slice(max(spans[v].start, c * t), min(spans[v].stop, (c + 1) * t, extents[v]))
        if any(s.start >= s.stop for s in spans.values()):
            continue
        blocks = [a[tuple(spans[v] for v in vs)] for a, vs in zip(arrays, stored, strict=True)]
        if not all(b.any() for b in blocks):
            continue
        for k, block in enumerate(blocks):
            prefix = at[: lasts[k] + 1]
            if prefix not in seen[k]:
                seen[k].add(prefix)
                fetched[k] += csf_words(block)
        terms = [x for b, vs in zip(blocks, stored, strict=True) for x in (b.astype(np.int64), [ord(v) for v in vs])]
        names = {ord(v): n for n, v in enumerate(order)}
        terms = [[names[x] for x in t] if isinstance(t, list) else t for t in terms]
        made = np.einsum(*terms, [names[ord(v)] for v in result]) > 0
        prefix = at[: lasts[-1] + 1]
        partial[prefix] = partial.get(prefix, False) | made
    return [*fetched, sum(map(csf_words, partial.values()))]


def blocks(array, extents):
    """The tiles of a dense array."""
    for at in itertools.product(*(range(-(-n // t)) for n, t in zip(array.shape, extents, strict=True))):
        yield array[tuple(slice(c * t, (c + 1) * t) for c, t in zip(at, extents, strict=True))]
