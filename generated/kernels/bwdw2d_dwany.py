"""Depthwise gradient of the weight, any strides and channel multiplier: a sum over pixels, split over programs.

Written by `python -m gen render` from templates/bwdw_dwany.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=bwdw2d_dwany
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ()



@triton.jit
def bwdw2d_dwany(
    x_ptr, w_ptr, y_ptr, count_ptr, partial_ptr,
    pixels, outputs, C_out,
    in_h, in_w, out_h, out_w,
    x_n, x_c, x_h, x_w, w_o, w_h, w_w, y_n, y_c, y_h, y_w,
    kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w,
    tiles_n, splits, share,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """w[o, tap] = sum over pixels of y[o, pixel] * x[o / C_out, pixel at tap]; one tap, BLOCK_N outputs, `share` pixels."""
    tile = tl.program_id(0)
    o = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    tap = tile // tiles_n % (kernel_h * kernel_w)
    split = tile // (tiles_n * (kernel_h * kernel_w))
    o_ok = o < outputs
    o = tl.where(o_ok, o, 0)
    k_w = tap % kernel_w
    tap = tap // kernel_w
    k_h = tap
    last_pixel = tl.minimum((split + 1) * share, pixels)
    sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(split * share, last_pixel, BLOCK_M):
        pixel = start + tl.arange(0, BLOCK_M)
        pixel_ok = pixel < last_pixel
        o_w = pixel % out_w
        n = pixel // out_w
        o_h = n % out_h
        n = n // out_h
        inside = pixel_ok
        i_h = o_h * stride_h - pad_h + k_h * dil_h
        inside &= (i_h >= 0) & (i_h < in_h)
        i_w = o_w * stride_w - pad_w + k_w * dil_w
        inside &= (i_w >= 0) & (i_w < in_w)
        y_row = tl.where(pixel_ok, n * y_n + o_h * y_h + o_w * y_w, 0)
        x_row = tl.where(inside, n * x_n + i_h * x_h + i_w * x_w, 0)
        ok = o_ok[:, None] & inside[None, :]
        a = tl.load(y_ptr + ((o * y_c)[:, None] + y_row[None, :]), mask=ok, other=0.0)
        b = tl.load(x_ptr + ((o // C_out * x_c)[:, None] + x_row[None, :]), mask=ok, other=0.0)
        sums += a.to(tl.float32) * b.to(tl.float32)
    acc = tl.sum(sums, 1)
    arrived = splits - 1
    if splits > 1:
        tiles = tl.num_programs(0) // splits
        place = tile % tiles
        within = tl.arange(0, BLOCK_N)
        partial = partial_ptr + place.to(tl.int64) * (BLOCK_N)
        stride = tiles.to(tl.int64) * (BLOCK_N)
        tl.store(partial + split * stride + within, acc)
        # Every thread's part must be written before one thread says so.
        tl.debug_barrier()
        arrived = tl.atomic_add(count_ptr + place, 1, sem="acq_rel", scope="gpu")
        if arrived == splits - 1:
            acc = tl.zeros((BLOCK_N,), dtype=tl.float32)
            for other in range(splits):
                acc += tl.load(partial + other * stride + within, cache_modifier=".cg")
    w_offset = o * w_o + k_h * w_h + k_w * w_w
    tl.store(w_ptr + w_offset, acc.to(w_ptr.dtype.element_ty), mask=o_ok & (arrived == splits - 1))
