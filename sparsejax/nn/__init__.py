"""`sparsejax.nn`: what neural networks are made of, as plain functions of dense and sparse arrays.

Everything is differentiable and may be jitted. Functions that normalise (`softmax` and its like) run over *stored* entries: what a
sparse array does not store takes no part. Optimisers follow the protocol of optax.
"""

from sparsejax.lax.elementwise import logistic as sigmoid
from sparsejax.nn.activations import elu, gelu, leaky_relu, relu, silu, softplus
from sparsejax.nn.layers import dot_product_attention, dropout, linear
from sparsejax.nn.losses import (
    mean_squared_error,
    softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels,
)
from sparsejax.nn.one_hot import embed, one_hot
from sparsejax.nn.optimizers import Optimizer, adam, adamw, apply_updates, sgd
from sparsejax.nn.segments import segment_max, segment_mean, segment_min, segment_softmax, segment_sum
from sparsejax.nn.stored import log_softmax, logsumexp, softmax
from sparsejax.numpy import tanh

__all__ = [
    "Optimizer",
    "adam",
    "adamw",
    "apply_updates",
    "dot_product_attention",
    "dropout",
    "elu",
    "embed",
    "gelu",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsumexp",
    "mean_squared_error",
    "one_hot",
    "relu",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_softmax",
    "segment_sum",
    "sgd",
    "sigmoid",
    "silu",
    "softmax",
    "softmax_cross_entropy",
    "softmax_cross_entropy_with_integer_labels",
    "softplus",
    "tanh",
]
