"""`sparsejax.nn`: what neural networks are made of, as plain functions of dense and sparse arrays.

Everything is differentiable and may be jitted. Functions that normalise (`softmax` and its like) run over *stored* entries: what a
sparse array does not store takes no part. Optimisers follow the protocol of optax.
"""

from sparsejax.lax.elementwise import logistic as sigmoid
from sparsejax.nn import initializers
from sparsejax.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_tanh,
    leaky_relu,
    log_sigmoid,
    relu,
    relu6,
    selu,
    silu,
    soft_sign,
    softplus,
    swish,
)
from sparsejax.nn.layers import dot_product_attention, dropout, linear
from sparsejax.nn.losses import (
    mean_squared_error,
    softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels,
)
from sparsejax.nn.normalization import batch_norm, layer_norm, rms_norm, standardize
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
    "batch_norm",
    "celu",
    "dot_product_attention",
    "dropout",
    "elu",
    "embed",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_tanh",
    "initializers",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "mean_squared_error",
    "one_hot",
    "relu",
    "relu6",
    "rms_norm",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_softmax",
    "segment_sum",
    "selu",
    "sgd",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softmax_cross_entropy",
    "softmax_cross_entropy_with_integer_labels",
    "softplus",
    "standardize",
    "swish",
    "tanh",
]


def __dir__() -> list[str]:
    return __all__
