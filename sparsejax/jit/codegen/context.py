"""What code for loops asks of the kernel under construction: `lower.Lowering` is one, and so may be a test's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen.emit import Num
from sparsejax.jit.codegen.environment import Env
from sparsejax.jit.codegen.operands import Axis, DenseArea, Operand
from sparsejax.jit.codegen.output import Output
from sparsejax.jit.codegen.sums import Sum
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.program import Program


class Context(Protocol):
    """A kernel under construction. It holds nothing that changes inside a statement: that is in `Env`."""

    @property
    def b(self) -> Builder:
        """Where code goes."""

    @property
    def program(self) -> Program:
        """What is lowered."""

    @property
    def output(self) -> Output:
        """The result in memory."""

    @property
    def operands(self) -> Mapping[str, Operand]:
        """Inputs and array workspaces by name."""

    @property
    def chunk(self) -> tuple[Val, Val]:
        """The number of the chunk that this call runs, and how many there are."""

    def keep(self, name: str, dtype: np.dtype[Any], size: int) -> DenseArea:
        """Memory for `size` values that a loop keeps until the kernel ends."""

    def axis_of_level(self, access: cin.Access, level: int) -> Axis:
        """How the dimension of a level is stored."""

    def bound(self, var: cin.IndexVar, env: Env) -> Val:
        """Where the loop over `var` ends."""

    def in_last_block(self, var: cin.IndexVar, env: Env) -> Val:
        """Whether the variable around `var`, one that runs inside blocks, has come to the last of these."""

    def resolve(self, env: Env, stmt: cin.Stmt) -> Env:
        """Resolve the levels of every access of `stmt` whose variables are bound."""

    def value(self, expr: cin.Expr, env: Env, lanes: int = 1, known: dict[cin.Expr, Num] | None = None) -> Num:
        """Compute `expr` in some lanes; `known` holds what was computed already, and gets what is computed."""

    def emit(self, stmt: cin.Stmt, env: Env) -> None:
        """Emit `stmt`, once for every access that may turn out not to be stored, and for every mask."""

    def write(self, stmt: cin.Assign, env: Env, value: Num) -> None:
        """Write a value where `stmt` does."""

    def write_lanes(self, stmt: cin.Assign, env: Env, position: Val, value: Num, lanes: int) -> None:
        """Write `lanes` values at consecutive positions."""

    def sum_of(self, stmt: cin.Where, tensor: cin.Tensor, env: Env) -> Sum | None:
        """The running sum of a scalar workspace that is one."""
