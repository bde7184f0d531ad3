"""Losses, by optax's names: one number per example, but for means."""

from __future__ import annotations

from typing import Any

from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.lax.elementwise import elementwise
from sparsejax.lax.reduce import mean, reduce
from sparsejax.nn.activations import floating
from sparsejax.nn.one_hot import one_hot
from sparsejax.nn.stored import log_softmax, logsumexp


def softmax_cross_entropy_with_integer_labels(logits: Any, labels: Any) -> Array:
    """-log softmax(logits)[label], of every row of dense `logits`. O(logits). A label outside chooses nothing: the loss of its row is logsumexp(logits).

    >>> import numpy as np
    >>> softmax_cross_entropy_with_integer_labels(np.zeros((2, 4)), np.array([0, 3])) / np.log(4)
    Array([1., 1.], dtype=float64)
    """
    logits, labels = floating(asarray(logits, "logits")), asarray(labels, "labels")
    if logits.shape[:-1] != labels.shape:
        raise ValueError(f"labels of shape {labels.shape} do not fit logits of shape {logits.shape}")
    chosen = reduce("sum", one_hot(labels, logits.shape[-1], logits.dtype) * logits, -1)
    return logsumexp(logits, -1) - chosen


@again(2, whole=True)
def softmax_cross_entropy(logits: Any, labels: Any) -> Array:
    """-sum(labels * log softmax(logits)) along the last axis, where `labels` are probabilities."""
    return -reduce("sum", labels * log_softmax(logits), -1)


@again(2, whole=True)
def mean_squared_error(predictions: Any, targets: Any) -> Array:
    """The mean of squared differences over all entries, stored or not."""
    return mean(elementwise("square", elementwise("subtract", predictions, targets)))
