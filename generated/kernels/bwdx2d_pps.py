"""Gradient of the input at stride 1 on Hopper, `pp` (ping-pong): one consumer multiplies while the other stores its tile.

Written by `python -m gen render` from templates/fwd_hopper_pp.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=bwdx2d_pps
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
    return warpgroup_mma(weights, pixels.permute((1, 0)), acc, use_acc=start == 0, is_async=True)


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
    bias = gl.convert_layout(bias.to(gl.float32), gl.SliceLayout(1, TILE))
    out = (acc + gl.expand_dims(bias, 1)).to(y.dtype)
    tma.store_wait(pendings=0)
    y.permute((1, 0)).store(out)
    fence_async_shared()
    tma.async_store(y_map, [pixel, o], y)



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
    y_map, b_ptr, a, b, y, empty, ready, turns, who: gl.constexpr,
    C_out, tiles_m, tiles_n, steps, has_bias, b_c,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr,
):
    """Every second tile of this program. A reduction begins when the other consumer has issued its last product: a
    wait for a barrier's phase may be at most one phase ahead, so the order is needed for a right result, not for speed."""
    ROWS: gl.constexpr = BLOCK_N
    COLUMNS: gl.constexpr = BLOCK_M
    TILE: gl.constexpr = accumulators(ROWS, COLUMNS, WARPS, a.dtype.primitive_bitwidth)
    count = 0
    turn = 1 - who
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        if count % 2 == who:
            row, column = tile_at(tile, tiles_m, tiles_n)
            bias = load_bias(b_ptr, b_c, has_bias, column * BLOCK_N, C_out, BLOCK_N, WARPS)
            mbarrier.wait(turns.index(who), turn)
            turn ^= 1
            slot = count * steps % STAGES
            phase = count * steps // STAGES % 2
            acc = gl.zeros((ROWS, COLUMNS), gl.float32, layout=TILE)
            acc, slot, phase = reduce_tile(acc, a, b, empty, ready, slot, phase, steps, STAGES)
            mbarrier.arrive(turns.index(1 - who), count=1)
            acc = finish_tile(acc, empty, slot, STAGES)
            store_tile(acc, bias, y_map, y, row * BLOCK_M, column * BLOCK_N, TILE)
        count += 1
    tma.store_wait(pendings=0)


@gluon.jit
def bwdx2d_pps(
    x_map, w_map, y_map, b_ptr,
    C_out, out_h, out_w, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, 
    tiles_m, tiles_n, steps, has_bias, b_c,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, BLOCK_C: gl.constexpr,
    STAGES: gl.constexpr, WARPS: gl.constexpr,
):
    """y[pixel, o] = b[o] + sum over c and taps of x[pixel at tap, c] * w[c, last tap - tap, o]: one warp loads, two consumers of
    WARPS take tiles in turn; a program takes every num_programs-th tile."""
    a = gl.allocate_shared_memory(x_map.dtype, [STAGES, BLOCK_M, BLOCK_K], x_map.layout)
    b = gl.allocate_shared_memory(w_map.dtype, [STAGES, BLOCK_K, 1, BLOCK_N], w_map.layout)
    y0 = gl.allocate_shared_memory(y_map.dtype, [BLOCK_M, BLOCK_C], y_map.layout)
    y1 = gl.allocate_shared_memory(y_map.dtype, [BLOCK_M, BLOCK_C], y_map.layout)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(empty.index(i), count=1)
        mbarrier.init(ready.index(i), count=1)
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(turns.index(0), count=1)
    mbarrier.init(turns.index(1), count=1)
    g = Geometry(out_h, out_w, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w)
    gl.warp_specialize([
        (consume, (y_map, b_ptr, a, b, y0, empty, ready, turns, 0,
                   C_out, tiles_m, tiles_n, steps, has_bias, b_c, BLOCK_M, BLOCK_N, STAGES, WARPS)),
        (consume, (y_map, b_ptr, a, b, y1, empty, ready, turns, 1,
                   C_out, tiles_m, tiles_n, steps, has_bias, b_c, BLOCK_M, BLOCK_N, STAGES, WARPS)),
        (produce, (x_map, w_map, a, b, empty, ready, C_out, g, tiles_m, tiles_n, steps, 1,
                   BLOCK_M, BLOCK_N, BLOCK_K, STAGES)),
    ], [WARPS, 1], [240, 24])
