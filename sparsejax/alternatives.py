"""Everything that can be done in more than one way with the same result, by name: what `config.skip` and `config.choose` take.

HOST       what a computer offers, and what happens where it is not there
PASSES     passes of the compiler that a program can do without
CHOICES    decisions of the compiler, with their alternatives: each has a legality test and a price where it is made (`jit/ir/choices`)
"""

from __future__ import annotations

HOST = {
    "loader": "machine code is linked by LLVM instead of our own loader",
    "futex": "threads of Python run kernels instead of native ones that sleep on a futex",
    "mremap": "memory comes from the C heap: blocks are neither kept nor moved by pages",
    "masks": "loops end in narrower vectors and single elements instead of a vector with masked lanes",
    "gathers": "elements at places that are not consecutive are loaded one by one",
    "recycling": "reference counts are not asked whether memory of results or donated arguments can be used again",
}
PASSES = {
    "reassociate": "products of three operands are computed as they are written",
    "split_fills": "sums over operands whose fill does not annihilate run over all coordinates",
    "intermediate_storage": "values between kernels are stored as their types say",
    "fuse_reductions": "kernels are not merged across reductions",
    "shared_patterns": "operands over the same index buffers are read one by one",
    "row_blocking": "the outermost loop is not cut into blocks of rows",
    "scatter_operands": "operands that are met again and again are not scattered into a workspace",
    "fission": "terms over different sparse operands are accumulated in one loop",
    "vectorize": "innermost loops have no lanes",
    "tile": "loops have no register tiles",
    "contract_arrays": "what is read once is stored all the same",
    "assigned_once": "dense results are cleared, and accumulated into",
    "in_place": "sparse results are put together by appending",
    "parallelize": "kernels run on one thread",
}
CHOICES: dict[str, dict[str, str]] = {
    "workspace": {
        "bitmap": "a bit and a value for every coordinate, and a list of keys",
        "marks": "a bit and a value for every coordinate",
        "hash": "a table",
        "coordinate": "a list that is sorted and merged",
        "bucket": "lists by range of keys",
        "tree": "a search tree",
    },
}
SKIPPABLE = {"host": HOST, "passes": PASSES}
