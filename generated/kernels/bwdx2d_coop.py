"""Gradient of the input at stride 1 on Hopper, `coop`: all consumers share a tile; splits of the reduction where tiles are few.

Written by `python -m gen render` from templates/fwd_hopper_coop.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=bwdx2d_coop
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait,
)

# No argument is promised to be a multiple of anything; what the tensor maps need is a constraint of dispatch.
ALIGNED = ()
# Tensor maps: kind, dimensions of the tensor, and the box that one load or store moves; of several sides, the smallest.
MAPS = {
    "x_map": ("im2col", 4, ("BLOCK_M", "BLOCK_K")),
    "w_map": ("tiled", 3, ("BLOCK_K", 1, ("BLOCK_N", 64))),
    "y_map": ("tiled", 2, ("BLOCK_M", "BLOCK_C")),
}
GROUP = gl.constexpr(8)  # row tiles that sweep the columns together: what they share stays in the L2


@gluon.jit
def tile_at(tile, tiles_m, tiles_n):
    """(row, column) of a tile, in units of tiles."""
    sweep = GROUP * tiles_n
    first = tile // sweep * GROUP
    rows = gl.minimum(tiles_m - first, GROUP)
    return first + tile % sweep % rows, tile % sweep // rows


@gluon.aggregate
class Geometry:
    """What the loads know of the convolution."""

    out_h: gl.tensor
    out_w: gl.tensor
    kernel_h: gl.tensor
    kernel_w: gl.tensor
    stride_h: gl.tensor
    stride_w: gl.tensor
    pad_h: gl.tensor
    pad_w: gl.tensor
    dil_h: gl.tensor
    dil_w: gl.tensor


@gluon.aggregate
class Corner:
    """Where a tile begins: its first pixel's window in the input, its first output channel; and how many boxes of
    weights it needs: loads of channels that do not exist are slow (docs/hopper.md)."""

    n: gl.tensor
    start_h: gl.tensor
    start_w: gl.tensor
    o: gl.tensor
    boxes: gl.tensor


@gluon.aggregate
class Step:
    """Where the reduction stands: its first channel and its tap, flat and by dimension."""

    c: gl.tensor
    tap: gl.tensor
    k_h: gl.tensor
    k_w: gl.tensor


@gluon.jit
def corner_of(pixel, o, w_map, C_out, g):
    boxes = gl.cdiv(C_out - o, w_map.block_type.shape[2])
    o_w = pixel % g.out_w
    n = pixel // g.out_w
    o_h = n % g.out_h
    n = n // g.out_h
    return Corner(n, o_h * g.stride_h - g.pad_h, o_w * g.stride_w - g.pad_w, o, boxes)


@gluon.jit
def step_at(k, g, BLOCK_K: gl.constexpr):
    taps = g.kernel_h * g.kernel_w
    tap = k % taps
    k_w = tap % g.kernel_w
    rest = tap // g.kernel_w
    k_h = rest
    return Step(k // taps * BLOCK_K, tap, k_h, k_w)


@gluon.jit
def next_step(step, g, BLOCK_K: gl.constexpr):
    k_w = step.k_w + 1
    last = k_w == g.kernel_w
    k_w = gl.where(last, 0, k_w)
    k_h = step.k_h + last.to(gl.int32)
    last = k_h == g.kernel_h
    k_h = gl.where(last, 0, k_h)
    tap = gl.where(last, 0, step.tap + 1)
    return Step(gl.where(last, step.c + BLOCK_K, step.c), tap, k_h, k_w)


@gluon.jit
def fetch(x_map, w_map, a, b, ready, slot, corner, step, g, wanted):
    """Start the loads of one step into a slot of the ring; `ready` completes when all of their bytes are there."""
    BOX: gl.constexpr = w_map.block_type.shape[2]
    BOXES: gl.constexpr = b.shape[3] // BOX
    bar = ready.index(slot)
    for i in gl.static_range(BOXES):
        last = corner.boxes > i if i + 1 == BOXES else corner.boxes == i + 1
        mbarrier.expect(bar, x_map.block_type.nbytes + (i + 1) * w_map.block_type.nbytes, pred=wanted & last)
    tma.async_load_im2col(
        x_map, [corner.n, corner.start_h, corner.start_w, step.c],
        [(step.k_h * g.dil_h).to(gl.int16), (step.k_w * g.dil_w).to(gl.int16)],
        bar, a.index(slot), pred=wanted,
    )
    for i in gl.static_range(BOXES):
        place = b.index(slot).slice(i * BOX, BOX, dim=2)
        tma.async_load(w_map, [step.c, g.kernel_h * g.kernel_w - 1 - step.tap, corner.o + i * BOX], bar, place, pred=wanted & (corner.boxes > i))


@gluon.jit
def next_slot(slot, phase, STAGES: gl.constexpr):
    """The ring's next slot; the phase of its barriers flips with every turn."""
    last = slot + 1 == STAGES
    return gl.where(last, 0, slot + 1), gl.where(last, phase ^ 1, phase)


@gluon.constexpr_function
def accumulators(rows, columns, warps, bits):
    """Layout of a tile: warps go down its rows while each has two fragments of 16, then across."""
    down, across = 4, 1
    while down * across < warps:
        if rows >= 32 * down:
            down *= 2
        else:
            across *= 2
    return gl.NVMMADistributedLayout([3, 0], [down, across], [16, min(256, columns // across), 256 // bits])


@gluon.jit
def multiply(acc, a, b, slot, start):
    """acc + the product of a slot, issued and not waited for; `start` drops what acc held."""
    BLOCK_N: gl.constexpr = b.shape[3]
    BLOCK_K: gl.constexpr = b.shape[1]
    pixels = a.index(slot)
    weights = b.index(slot).reshape((BLOCK_K, BLOCK_N)).permute((1, 0))
    return warpgroup_mma(pixels, weights.permute((1, 0)), acc, use_acc=start == 0, is_async=True)


@gluon.jit
def load_bias(b_ptr, b_c, has_bias, o, C_out, BLOCK_N: gl.constexpr, WARPS: gl.constexpr):
    """The tile's biases, one for each thread: read before the reduction, they cost no time after it."""
    SPREAD: gl.constexpr = gl.BlockedLayout([max(BLOCK_N // (32 * WARPS), 1)], [32], [WARPS], [0])
    o = o + gl.arange(0, BLOCK_N, layout=SPREAD)
    return gl.load(b_ptr + o * b_c, mask=(o < C_out) & (has_bias != 0), other=0.0)


@gluon.jit
def store_tile(acc, bias, y_map, y, pixel, o, TILE: gl.constexpr):
    """Add the bias, round, and start the stores; `y` is the shared memory they leave from, a tile's part at a time."""
    BLOCK_M: gl.constexpr = y.shape[0]
    BLOCK_C: gl.constexpr = y.shape[1]
    bias = gl.convert_layout(bias.to(gl.float32), gl.SliceLayout(0, TILE))
    out = (acc + gl.expand_dims(bias, 0)).to(y.dtype)
    if acc.shape[1] == BLOCK_C:
        tma.store_wait(pendings=0)
        y.store(out)
        fence_async_shared()
        tma.async_store(y_map, [pixel, o], y)
    else:
        parts = out.reshape((BLOCK_M, 2, BLOCK_C)).permute((0, 2, 1)).split()
        for i in gl.static_range(2):
            tma.store_wait(pendings=0)
            y.store(parts[i])
            fence_async_shared()
            tma.async_store(y_map, [pixel, o + i * BLOCK_C], y)



@gluon.jit
def produce(
    x_map, w_map, a, b, empty, ready, C_out, g, tiles_m, tiles_n, steps, splits,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
):
    """Load every step of every tile of this program, as slots become empty."""
    slot = 0
    phase = 1  # an unused barrier lets a wait for the phase before its first pass at once
    for unit in range(gl.program_id(0), tiles_m * tiles_n * splits, gl.num_programs(0)):
        row, column = tile_at(unit // splits, tiles_m, tiles_n)
        corner = corner_of(row * BLOCK_M, column * BLOCK_N, w_map, C_out, g)
        split = unit % splits
        first = split * steps // splits
        step = step_at(first, g, BLOCK_K)
        for k in range(first, (split + 1) * steps // splits):
            mbarrier.wait(empty.index(slot), phase)
            fetch(x_map, w_map, a, b, ready, slot, corner, step, g, gl.to_tensor(True))
            step = next_step(step, g, BLOCK_K)
            slot, phase = next_slot(slot, phase, STAGES)


@gluon.jit
def reduce_tile(acc, a, b, empty, ready, slot, phase, steps, STAGES: gl.constexpr):
    """acc = the sum over `steps` slots; one product is always in flight, and the slot before it is given back."""
    for k in range(steps):
        mbarrier.wait(ready.index(slot), phase)
        acc = multiply(acc, a, b, slot, (k == 0).to(gl.int32))
        acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
        # Not a variable carried from the step before: Triton 3.8 would keep its first value (docs/hopper.md).
        mbarrier.arrive(empty.index(gl.where(slot == 0, STAGES - 1, slot - 1)), count=1, pred=k > 0)
        slot, phase = next_slot(slot, phase, STAGES)
    return acc, slot, phase


@gluon.jit
def finish_tile(acc, empty, slot, STAGES: gl.constexpr):
    """Wait for the last product and give its slot back."""
    acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    mbarrier.arrive(empty.index(gl.where(slot == 0, STAGES - 1, slot - 1)), count=1)
    return acc


@gluon.jit
def consume(
    y_map, b_ptr, a, b, y, empty, ready, partial_ptr, count_ptr,
    C_out, tiles_m, tiles_n, steps, splits, has_bias, b_c,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr,
):
    """Every tile of this program. A split tile goes to the workspace; the program that finishes it last adds the
    splits in their order, so that the result is the same in every run."""
    TILE: gl.constexpr = accumulators(BLOCK_M, BLOCK_N, WARPS, a.dtype.primitive_bitwidth)
    rows = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, TILE))
    columns = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, TILE))
    inside = gl.expand_dims(rows, 1) * BLOCK_N + gl.expand_dims(columns, 0)
    slot = 0
    phase = 0
    for unit in range(gl.program_id(0), tiles_m * tiles_n * splits, gl.num_programs(0)):
        tile = unit // splits
        split = unit % splits
        row, column = tile_at(tile, tiles_m, tiles_n)
        bias = load_bias(b_ptr, b_c, has_bias, column * BLOCK_N, C_out, BLOCK_N, WARPS)
        share = (split + 1) * steps // splits - split * steps // splits
        acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout=TILE)
        acc, slot, phase = reduce_tile(acc, a, b, empty, ready, slot, phase, share, STAGES)
        acc = finish_tile(acc, empty, slot, STAGES)
        if splits == 1:
            store_tile(acc, bias, y_map, y, row * BLOCK_M, column * BLOCK_N, TILE)
        else:
            partials = partial_ptr + (tile * splits).to(gl.int64) * (BLOCK_M * BLOCK_N)
            gl.store(partials + split * (BLOCK_M * BLOCK_N) + inside, acc)
            gl.barrier()
            done = gl.atomic_add(count_ptr + tile, 1, sem="acq_rel", scope="gpu")
            if done == splits - 1:
                acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout=TILE)
                for i in range(splits):
                    acc += gl.load(partials + i * (BLOCK_M * BLOCK_N) + inside)
                store_tile(acc, bias, y_map, y, row * BLOCK_M, column * BLOCK_N, TILE)
    tma.store_wait(pendings=0)


@gluon.jit
def bwdx2d_coop(
    x_map, w_map, y_map, b_ptr, partial_ptr, count_ptr,
    C_out, out_h, out_w, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, 
    tiles_m, tiles_n, steps, splits, has_bias, b_c,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, BLOCK_C: gl.constexpr,
    STAGES: gl.constexpr, WARPS: gl.constexpr,
):
    """y[pixel, o] = b[o] + sum over c and taps of x[pixel at tap, c] * w[c, last tap - tap, o]: one warp loads, WARPS multiply;
    a program takes every num_programs-th tile."""
    a = gl.allocate_shared_memory(x_map.dtype, [STAGES, BLOCK_M, BLOCK_K], x_map.layout)
    b = gl.allocate_shared_memory(w_map.dtype, [STAGES, BLOCK_K, 1, BLOCK_N], w_map.layout)
    y = gl.allocate_shared_memory(y_map.dtype, [BLOCK_M, BLOCK_C], y_map.layout)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(empty.index(i), count=1)
        mbarrier.init(ready.index(i), count=1)
    g = Geometry(out_h, out_w, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w)
    gl.warp_specialize([
        (consume, (y_map, b_ptr, a, b, y, empty, ready, partial_ptr, count_ptr,
                   C_out, tiles_m, tiles_n, steps, splits, has_bias, b_c, BLOCK_M, BLOCK_N, STAGES, WARPS)),
        (produce, (x_map, w_map, a, b, empty, ready, C_out, g, tiles_m, tiles_n, steps, splits,
                   BLOCK_M, BLOCK_N, BLOCK_K, STAGES)),
    ], [1], [24])
