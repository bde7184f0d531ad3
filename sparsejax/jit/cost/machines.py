"""The machines that are shipped: the first one counts where caches are not known.

ice_lake    two cores of a server at 2.8 GHz, a virtual machine: as `python -m benchmarks.calibrate` printed it, but for four prices set by hand:
            `enter` (fitted: 13), which the benchmark rows tell better; `row` (11), which softmax of rows of one entry tells better; and `short`:
            SpMV of 100,000 rows of 6, 10, 14, 20 and 28 entries in blocks takes 0.94, 1.00, 1.06, 1.08 and 1.05 times as long as row by row;
            `append` (2.0, fitted when an operand that is read again in the same run of a row cost 0.4 ns per entry more than it does); `close` was
            not measured there, `split` neither
zen3        two cores of a server, a virtual machine: fitted to 115 kernels of the benchmark rows as `benchmarks.calibrate` does, but for what looking up
            takes (`lookup`, `miss`, `scatter`), which masked products of chosen densities tell
sapphire_rapids     two cores of a server with AVX-512 and 300 MB of third-level cache, a virtual machine beside other work: fitted to 130 kernels by
            `benchmarks.calibrate`; `close` from two loop orders of one product (`nd_mul`), which is all that
            tells it, and `row` by hand (fitted: 8.5), as softmax of short rows computes its functions twice otherwise, in twice the time
granite_rapids      two cores of a server with AVX-512 and 480 MB of third-level cache, a virtual machine alone: fitted to 156 kernels by
            `benchmarks.calibrate`; `split` by hand, from products of 500 to 4,000 rows with 32 to 128 columns (0.46 to 0.64), and
            `function`, from vectors of 2,000 (exp 0.55, log 0.62, sqrt 0.77, tanh 1.37, log1p 1.59)
            (`lone` is that of sums of 8,192 and 500,000 rows; on the others it was not measured, and is `row`)
            `chain` is four cycles everywhere; on this one products of 32 x 32 matrices with a vector tell it
zen4        the tables of workspaces and conversions were fitted there; else ice_lake's, with what is known to differ
"""

from __future__ import annotations

from dataclasses import replace

from sparsejax.jit.cost.price_table import Machine

ICE_LAKE = Machine(
    name="ice_lake",
    caches=(48 << 10, 1280 << 10, 48 << 20),
    call=5600.0,
    iterate=0.21,
    enter=8.0,
    row=3.0,
    lone=3.0,
    short=8,
    lane=0.057,
    strided=6.4,
    start=5.2,
    chain=1.4,
    merge=4.8,
    lookup=0.8,
    miss=9.0,
    scatter=4.9,
    take=2.0,
    arithmetic=0.017,
    function=2.0,
    multiply=0.1,
    workspace=3.8,
    conversion=2.0,
    line=(0.71, 3.1, 2.3),
    stream=(1.5, 0.76, 1.6),
    write=(1.8, 4.3, 15.0),
    fill=(0.68, 1.4, 4.0),
    split=0.0,
    store=2.0,
    append=1.6,
    close=12.0,
    whole=16.0,
    gather=30.0,
    stall=75.0,
    look=0.25,
    remember=20000.0,
    compile=20000000.0,
    calls=4.0,
)

ZEN4 = replace(
    ICE_LAKE,
    name="zen4",
    caches=(32 << 10, 1024 << 10, 32 << 20),
    iterate=0.3,
    enter=5.0,
    row=2.0,
    lone=2.0,
    short=16,
    strided=2.0,
    chain=1.1,
    workspace=1.0,
    conversion=1.0,
    line=(0.8, 2.5, 5.0),
    stream=(0.6, 0.8, 2.0),
    write=(1.0, 3.0, 8.0),
    fill=(0.5, 1.0, 3.0),
)

ZEN3 = replace(
    ZEN4,
    name="zen3",
    caches=(32 << 10, 512 << 10, 32 << 20),
    call=3400.0,
    iterate=0.14,
    enter=4.3,
    row=3.9,
    lone=3.9,
    lane=0.056,
    merge=2.9,
    append=0.5,
    store=0.65,
    workspace=2.7,
    line=(1.0, 3.1, 5.4),
    stream=(0.69, 1.5, 1.9),
    write=(1.2, 3.8, 8.0),
    fill=(0.59, 2.2, 2.6),
)

SAPPHIRE_RAPIDS = replace(
    ICE_LAKE,
    name="sapphire_rapids",
    caches=(48 << 10, 2048 << 10, 300 << 20),
    call=3500.0,
    iterate=0.11,
    enter=5.4,
    row=5.0,
    lone=5.0,
    lane=0.039,
    start=4.1,
    chain=1.3,
    merge=4.4,
    lookup=1.2,
    miss=15.0,
    scatter=4.8,
    arithmetic=0.011,
    close=18.0,
    workspace=2.8,
    line=(0.62, 3.2, 2.3),
    stream=(1.3, 1.3, 1.6),
    write=(3.7, 4.2, 15.0),
    fill=(1.0, 1.6, 4.2),
    split=0.5,
)

GRANITE_RAPIDS = replace(
    SAPPHIRE_RAPIDS,
    name="granite_rapids",
    caches=(48 << 10, 2048 << 10, 480 << 20),
    call=2600.0,
    iterate=0.083,
    enter=4.0,
    row=5.1,
    lone=1.2,
    lane=0.032,
    start=3.4,
    chain=1.4,
    merge=2.8,
    lookup=1.1,
    miss=8.7,
    scatter=4.2,
    arithmetic=0.0087,
    function=0.85,
    close=14.0,
    workspace=1.7,
    line=(0.67, 3.5, 2.3),
    stream=(0.64, 1.3, 1.6),
    write=(6.5, 4.2, 15.0),
    fill=(1.5, 2.4, 4.2),
    split=0.55,
)

MACHINES = (ICE_LAKE, ZEN3, ZEN4, SAPPHIRE_RAPIDS, GRANITE_RAPIDS)
