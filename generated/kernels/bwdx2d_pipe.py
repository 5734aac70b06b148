"""Gradient of the input at stride 1 on Hopper, `pipe`: no warp is special; small enough for two programs on a multiprocessor.

Written by `python -m gen render` from templates/fwd_hopper_pipe.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=bwdx2d_pipe
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
def bwdx2d_pipe(
    x_map, w_map, y_map, b_ptr,
    C_out, out_h, out_w, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, 
    tiles_m, tiles_n, steps, has_bias, b_c,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, BLOCK_C: gl.constexpr,
    STAGES: gl.constexpr, WARPS: gl.constexpr,
):
    """y[pixel, o] = b[o] + sum over c and taps of x[pixel at tap, c] * w[c, last tap - tap, o]: one tile; all warps multiply, one
    thread refills the slot that the product before has left."""
    a = gl.allocate_shared_memory(x_map.dtype, [STAGES, BLOCK_M, BLOCK_K], x_map.layout)
    b = gl.allocate_shared_memory(w_map.dtype, [STAGES, BLOCK_K, 1, BLOCK_N], w_map.layout)
    y = gl.allocate_shared_memory(y_map.dtype, [BLOCK_M, BLOCK_C], y_map.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)
    fence_async_shared()
    g = Geometry(out_h, out_w, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w)
    row, column = tile_at(gl.program_id(0), tiles_m, tiles_n)
    corner = corner_of(row * BLOCK_M, column * BLOCK_N, w_map, C_out, g)
    step = step_at(gl.to_tensor(0), g, BLOCK_K)
    for i in gl.static_range(STAGES - 1):
        fetch(x_map, w_map, a, b, ready, i, corner, step, g, i < steps)
        step = next_step(step, g, BLOCK_K)
    bias = load_bias(b_ptr, b_c, has_bias, column * BLOCK_N, C_out, BLOCK_N, WARPS)
    TILE: gl.constexpr = accumulators(BLOCK_M, BLOCK_N, WARPS, x_map.dtype.primitive_bitwidth)
    acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout=TILE)
    slot = 0
    phase = 0
    refill = STAGES - 1
    for k in range(steps):
        mbarrier.wait(ready.index(slot), phase)
        acc = multiply(acc, a, b, slot, (k == 0).to(gl.int32))
        acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
        gl.barrier()  # every warp's product of the step before is done: its slot may be overwritten
        fetch(x_map, w_map, a, b, ready, refill, corner, step, g, k + STAGES - 1 < steps)
        step = next_step(step, g, BLOCK_K)
        refill = gl.where(refill + 1 == STAGES, 0, refill + 1)
        slot, phase = next_slot(slot, phase, STAGES)
    acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    store_tile(acc, bias, y_map, y, row * BLOCK_M, column * BLOCK_N, TILE)
    tma.store_wait(pendings=0)
