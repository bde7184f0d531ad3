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
    "fma": "what rounding loses of a sum is found by additions alone, not by products with one beside them",
    "gathers": "elements at places that are not consecutive are loaded one by one",
    "entry": "Python enters kernels by ctypes instead of functions of its own calling convention",
    "recycling": "reference counts are not asked whether memory of results or donated arguments can be used again",
}
PASSES = {
    "symbolic_shapes": "every new shape is traced and planned anew",
    "inner_sums": "sums of products add the entries of the products",
    "reassociate": "products of three operands are computed as they are written",
    "shared_products": "what several products of three operands can begin with is computed for each",
    "thinned_products": "products of which entries are dropped are stored as a whole",
    "split_fills": "sums over operands whose fill does not annihilate run over all coordinates",
    "intermediate_storage": "values between kernels are stored as their types say",
    "fuse_reductions": "kernels are not merged across reductions",
    "recomputed": "cheap values that several kernels read are stored",
    "stored_factors": "divisions and functions of what is broadcast along a sparse array are computed for every entry",
    "one_sum": "sums inside of sums are kept for some loops",
    "dense_rows": "sums of stored rows are appended row by row",
    "scatter_order": "sums into named rows are made by the rows of the result",
    "turned_results": "dense results are written in the order of their dimensions",
    "shared_patterns": "operands over the same index buffers are read one by one",
    "units": "dense axes of extent one are loops of one step",
    "row_blocking": "the outermost loop is not cut into blocks of rows",
    "scatter_operands": "operands that are met again and again are not scattered into a workspace",
    "exhaust": "arithmetic with numbers that change nothing is done, and workspaces that nobody reads are filled",
    "fission": "terms over different sparse operands are accumulated in one loop",
    "pack": "what panels of columns read again and again is read where it lies",
    "vectorize": "innermost loops have no lanes",
    "tile": "loops have no register tiles",
    "contract_arrays": "what is read once is stored all the same",
    "assigned_once": "dense results are cleared, and accumulated into",
    "over_result": "dense workspaces have memory beside the result that is made of them",
    "single_valued": "values of workspaces are stored, also where all of them are equal",
    "drained_masks": "masks are tested at every insertion into a workspace",
    "stores": "what strips assign goes through the caches",
    "in_place": "sparse results are put together by appending",
    "parallelize": "kernels run on one thread",
}
CHOICES: dict[str, dict[str, str]] = {
    "rounds": {
        "program": "a whole program is one table of calls that machine code runs, loops and what is before and behind them",
        "table": "a loop is one table of calls that machine code runs, where its steps are kernels",
        "apart": "every round runs as any program does",
    },
    "operations": {
        "written": "the operations of such a table are machine code of their own, once there were a thousand rounds",
        "read": "one function reads the operations of every table",
    },
    "sharded_loops": {
        "rounds": "a loop over arrays in shards is tasks for every round, and the client reads what it depends on",
        "together": "all its rounds are one task, or one for each part of an axis on which nothing meets",
    },
    "sharded_tasks": {
        "apart": "every operation on a shard is a task, of which the scheduler hears",
        "gang": "all that a worker does for a result is one task, and these pass results to each other",
    },
    "shapes": {
        "fixed": "the first call of a program is traced for its shapes; extents that change in later ones are symbols",
        "symbolic": "all extents of the first call are symbols already",
    },
    "association": {
        "first": "of three factors, the first two are contracted first",
        "last": "the last two",
        "outer": "the first and the last",
    },
    "reductions": {
        "outside": "a sum over an axis of a product adds the entries of the product",
        "inside": "the operand that alone has the axis is summed first",
    },
    "products": {"library": "products of dense operands are library calls", "kernel": "they are kernels"},
    "fusion": {
        "together": "a value is computed in the kernel that reads it",
        "again": "in every kernel that reads it",
        "apart": "it is stored between two kernels",
    },
    "factors": {
        "computed": "a division or function of what is broadcast along a sparse array is computed for every entry",
        "stored": "it is stored before, once for all that read it",
    },
    "constants": {
        "loops": "a sparse array that never changes is walked as any other",
        "static": "code is written out for each of its entries",
    },
    "steps": {
        "one": "all its entries are contracted with the other operands in the same steps",
        "apart": "those that share a matrix in the steps that take the fewest multiplications for them",
    },
    "fills": {
        "together": "a sum over operands whose fill does not annihilate runs over all coordinates",
        "apart": "what such operands do not store is summed without them",
    },
    "storage": {
        "typed": "a value between kernels is stored as its type says",
        "dense": "as a dense array",
    },
    "loop_order": {
        "cheapest": "the order of loops that is expected to cost least",
        "dearest": "that which is expected to cost most",
        "any": "one that is drawn",
    },
    "depth": {
        "cheapest": "a reduction in a kernel of several is computed where that is expected to cost least",
        "outermost": "outside of as many loops of its reader as can be",
        "innermost": "inside of as many as can be",
    },
    "meeting": {
        "merged": "sparse operands that meet are walked in step",
        "scattered": "one that is met again and again is scattered into a workspace, and looked up",
    },
    "workspace": {
        "bitmap": "a bit and a value for every coordinate, and a list of keys",
        "marks": "a bit and a value for every coordinate",
        "hash": "a table",
        "coordinate": "a list that is sorted and merged",
        "bucket": "lists by range of keys",
    },
    "masked_insert": {
        "jump": "an entry that a mask does not let through is jumped over",
        "select": "its value is computed, and not taken",
    },
    "mask_tests": {
        "inserted": "a mask is tested at every insertion into a workspace",
        "drained": "where the workspace is drained: what it does not let through is inserted, and dropped there",
    },
    "entries": {
        "kept": "the values of a workspace are stored, also where all of them are equal",
        "one": "they are one constant",
    },
    "rows": {
        "whole": "the outermost loop runs over all rows",
        "blocks": "over blocks of rows that fit into the first cache",
        "pairs": "over blocks of two rows",
    },
    "returns": {
        "numbers": "entries that an index array took of a sparse array are added up at their numbers",
        "coordinates": "at their coordinates",
    },
    "targets": {
        "rows": "an index array of the target is sorted by the rows that it names",
        "pairs": "with another one beside it that names what rows share, by both",
    },
    "scatters": {
        "target": "entries of an index array of the target are walked by the rows of the result that they name",
        "read": "by the rows of an operand that another index array names",
        "sorted": "by these, in copies of what the entries have, made in this order once",
    },
    "sums_inside": {
        "kept": "a sum of products inside of another is kept for some of its loops",
        "one": "both are one sum, over the loops of both, of which an operand is read in panels where that pays",
    },
    "row_sums": {
        "stored": "sums of rows that are stored as a whole are appended, row by row",
        "dense": "they are added up in a dense array, in panels where these pay, and then copied",
    },
    "results": {
        "straight": "a dense result is written in the order of its dimensions",
        "turned": "in the order of a dense operand, and turned afterwards",
    },
    "panels": {
        "rows": "a sparse operand is read as it is stored, row by row or in another order",
        "columns": "in panels of rows, column by column, so that entries share what their column leads to",
    },
    "columns": {
        "whole": "a product runs over all columns at once",
        "packed": "over panels of columns, outside all other loops, of which what is read again and again is packed",
    },
    "tile": {
        "plain": "a vector loop stays where it is",
        "tiled": "it moves outside of a reduction, whose sums stay in registers",
        "strided": "so does a loop whose result lies apart: what it reads fills vectors, whose lanes are stored one by one",
        "held": "it moves outside of a loop over entries, for which what it reads stays in registers",
    },
    "sums": {
        "walk": "tiles that meet blocks hold their sums over a whole walk over these",
        "block": "they hold them over a block, or an entry of two coordinates, which adds them to the result",
    },
    "strips": {
        "inside": "tiles of several rows run over all columns before the next rows",
        "outside": "over all rows before the next columns, of which a strip of what rows share stays in the first cache",
    },
    "stores": {
        "cached": "what strips assign of a dense result goes through the caches",
        "past": "past them, where no cache holds it",
    },
    "chunks": {
        "whole": "a kernel runs as one piece on one thread",
        "two": "in two chunks",
        "usual": "in as many chunks as the work is worth",
        "each": "every coordinate of the outermost loop is a chunk",
    },
    "alone": {
        "straight": "on one thread, a kernel that has chunks runs as one piece",
        "chunked": "chunk by chunk there too",
    },
    "pattern": {
        "coordinates": "operands are met by their coordinates",
        "alone": "the result is written by position of one operand",
        "shared": "operands over the same buffers are met by position",
    },
    "copies": {
        "never": "an operand in another order is copied only where the loops need that",
        "paid": "it is copied once what copies would have saved has paid for them",
        "once": "it is copied in the first call, and remembered",
    },
    "line_starts": {
        "where_they_are": "dense operands are read where they are",
        "copied": "those that do not begin with a line of the cache are copied before a kernel reads them again and again",
    },
    "conversion": {
        "passes": "an array is converted by passes of NumPy, or their machine code, one by one",
        "kernel": "by one kernel",
        "ahead": "by one kernel that walks rows, and fetches ahead what their entries will touch",
    },
    "passes": {"numpy": "the passes of a conversion are NumPy's", "compiled": "machine code"},
    "memory": {"recycled": "small dense results use the memory of earlier ones again", "fresh": "they never do"},
    "donation": {
        "overwritten": "a kernel may write where it reads, if the operand is donated",
        "kept": "it never does",
    },
    "loop_shape": {
        "range": "every coordinate",
        "staged_rows": "blocks of rows: every statement runs over all entries of a block before the next one does",
        "summed_rows": "blocks of rows: what is summed up is computed for all entries of a block, and then added up row by row",
        "side_by_side": "four reductions in lanes at once",
        "entries": "the places of one leader, one by one",
        "consecutive": "the places of one leader; where these are its coordinates, what lies there side by side",
        "groups": "the places of one leader, all slots of a group before the next one",
        "padded": "the places of one leader that adds to a dense result anywhere, the first four of every segment without asking where it ends",
        "row_tiles": "the places of one leader, several at a time, each a row of a register tile",
        "stored_values": "the places of one leader in lanes",
        "pairs": "the places of one leader, with two running sums",
        "unrolled": "the places of one leader, with four running sums, in lanes or in registers",
        "positions": "the positions that several levels of one leader share, one by one, with the coordinates of all of these at once",
        "segmented": "the same in lanes: sums of neighbours with equal coordinates, in a segmented scan",
        "gathered": "the places of one leader in masked lanes, other operands being gathered by the processor",
        "band": "the consecutive coordinates that all leaders have",
        "runs": "the ranges of coordinates in which no leader changes",
        "intersection": "the places of several leaders, all needed",
        "union": "the places of two or three leaders without branches, each of them enough",
        "merge": "the lowest coordinate of all leaders, and who is there",
        "overwrite": "every coordinate without leaders, then those of the leaders once more",
        "gaps": "between the coordinates of leaders, and there",
        "coordinates": "every coordinate, and which leaders are there",
        "independent": "parts of a body with a test each",
    },
    "range": {
        "once": "what is the same at all coordinates is computed once, and repeated by the operator",
        "lanes": "some coordinates at a time, in vectors",
        "steps": "one coordinate after the other",
    },
    "tail": {
        "masked": "the last places of a walk in vectors fill some lanes of one more",
        "scalar": "the last places of a walk in vectors are visited one by one",
        "unasked": "a first vector with masked lanes runs without asking whether there is any place",
    },
    "prefetch": {
        "ahead": "what a walk will read of other operands is fetched before",
        "own": "and what it reads of its own, once for every segment",
        "none": "the processor fetches by itself",
    },
}
EXACT = frozenset({"alone", "line_starts", "pattern", "prefetch", "range", "rows", "stores", "strips", "tile"})
"""Choices whose alternatives add up in the same order, and give the same bits with the shipped optimisation: they may compete in time
(`jit(f, autotune=True)`), where bits are compared once more."""
SKIPPABLE = {"host": HOST, "passes": PASSES}
