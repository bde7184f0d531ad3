"""Gradient descent by pure functions over pytrees, in optax's protocol: any optimiser of optax may stand in for these, and these for it.

    optimizer = adam(1e-2)
    state = optimizer.init(params)
    updates, state = optimizer.update(grads, state, params)
    params = apply_updates(params, updates)

Sparse parameters are updated at their patterns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsejax.core.primitive import asarray
from sparsejax.lax.elementwise import convert_element_type, elementwise, where
from sparsejax.lax.linear import zeros_like
from sparsejax.tree_util import tree_map


class Optimizer(NamedTuple):
    """`init(params) -> state`, and `update(grads, state, params) -> (updates, state)`."""

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


def apply_updates(params: Any, updates: Any) -> Any:
    """`params + updates`, leaf by leaf."""
    return tree_map(lambda p, u: elementwise("add", p, u), params, updates)


def _zeros(params: Any) -> Any:
    return tree_map(lambda p: zeros_like(asarray(p)), params)


def sgd(learning_rate: float, momentum: float = 0.0, nesterov: bool = False) -> Optimizer:
    """Stochastic gradient descent, with momentum where it is not 0 (Sutskever, Martens, Dahl and Hinton, 2013)."""

    def init(params: Any) -> Any:
        return _zeros(params) if momentum else ()

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if not momentum:
            return tree_map(lambda g: g * -learning_rate, grads), state
        state = tree_map(lambda g, v: v * momentum + g, grads, state)
        used = tree_map(lambda g, v: v * momentum + g, grads, state) if nesterov else state
        return tree_map(lambda v: v * -learning_rate, used), state

    return Optimizer(init, update)


class AdamState(NamedTuple):
    """Steps made, and the running means of gradients and of their squares."""

    count: Any
    mean: Any
    square: Any


def _root(v: Any) -> Any:
    """The square root, whose derivative at zero is taken to be zero: nothing moves where no gradient has been."""
    there = elementwise("greater", v, 0)
    return where(there, elementwise("sqrt", where(there, v, 1.0)), 0.0)


def adam(
    learning_rate: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0
) -> Optimizer:
    """Adam (Kingma and Ba, 2015, algorithm 1). `weight_decay` times the parameters is added to the gradients."""
    return _adam(learning_rate, b1, b2, eps, weight_decay, decoupled=False)


def adamw(
    learning_rate: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 1e-4
) -> Optimizer:
    """Adam with `weight_decay` times the parameters subtracted beside it (Loshchilov and Hutter, 2019, algorithm 2)."""
    return _adam(learning_rate, b1, b2, eps, weight_decay, decoupled=True)


def _adam(rate: float, b1: float, b2: float, eps: float, decay: float, decoupled: bool) -> Optimizer:
    def init(params: Any) -> AdamState:
        return AdamState(asarray(np.int64(0)), _zeros(params), _zeros(params))

    def update(grads: Any, state: AdamState, params: Any = None) -> tuple[Any, AdamState]:
        if decay and params is None:
            raise ValueError("weight decay needs the parameters: update(grads, state, params)")
        if decay and not decoupled:
            grads = tree_map(lambda g, p: g + p * decay, grads, params)
        count = state.count + 1
        steps = convert_element_type(count, np.float64)
        mean = tree_map(lambda m, g: m * b1 + g * (1 - b1), state.mean, grads)
        square = tree_map(lambda v, g: v * b2 + g * g * (1 - b2), state.square, grads)
        first, second = (1 - elementwise("power", b, steps) for b in (b1, b2))

        def step(m: Any, v: Any) -> Any:
            scale = (convert_element_type(s, m.dtype) for s in (-rate / first, second))
            return m * next(scale) / (_root(v / next(scale)) + eps)

        updates = tree_map(step, mean, square)
        if decay and decoupled:
            updates = tree_map(lambda u, p: u - p * (rate * decay), updates, params)
        return updates, AdamState(count, mean, square)

    return Optimizer(init, update)
