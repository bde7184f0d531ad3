"""Arrays and functions past one machine, on Dask: `pip install 'sparsejax[dask]'`.

`shard` cuts an array into blocks of as many stored entries, `jit` runs a function over such arrays as one graph of Dask's, `explain` says what it moves;
`save_shards`, `open_shards` and `open_files` keep shards in files, which tasks read.
Importing this package makes arrays known to `dask.array` (`interop.dask_adapter`).
"""

from sparsejax.dask.api import ShardedFunction, explain, jit
from sparsejax.dask.files import open_files, open_shards, save_shards
from sparsejax.dask.sharded import Sharded, shard
from sparsejax.interop import dask_adapter
from sparsejax.optional import optional

optional("dask.array", "dask")
dask_adapter.register()

__all__ = ["Sharded", "ShardedFunction", "explain", "jit", "open_files", "open_shards", "save_shards", "shard"]
