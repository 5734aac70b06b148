"""Gradient of the weight for channels-last tensors: a GEMM over pixels, split over programs, for each tap.

Written by `python -m gen render` from templates/bwdw_cl.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=bwdw3d_cl
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ("C_in", "C_out", "channels", "w_*", "w_ptr", "x_*", "x_ptr", "y_*", "y_ptr", )



@triton.jit
def bwdw3d_cl(
    x_ptr, w_ptr, y_ptr, count_ptr, partial_ptr,
    pixels, C_in, C_out,
    in_d, in_h, in_w, out_d, out_h, out_w,
    x_n, x_d, x_h, x_w, w_o, w_d, w_h, w_w, y_n, y_d, y_h, y_w,
    kernel_d, kernel_h, kernel_w, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, dil_d, dil_h, dil_w,
    tiles_m, tiles_n, groups, splits, share,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):
    """w[o, tap, c] = sum over pixels of y[pixel, o] * x[pixel at tap, c]; BLOCK_M x BLOCK_N channels, `share` pixels."""
    VECTOR: tl.constexpr = 128 // x_ptr.dtype.element_ty.primitive_bitwidth
    tile = tl.program_id(0)
    tile_n = tile % tiles_n
    tap = tile // tiles_n % (kernel_d * kernel_h * kernel_w)
    rest = tile // (tiles_n * (kernel_d * kernel_h * kernel_w))
    tile_m = rest % tiles_m
    group = rest // tiles_m % groups
    split = rest // (tiles_m * groups)
    o = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    o_ok = o < C_out
    c_ok = c < C_in
    # Channel counts are multiples of VECTOR: a vector is inside or outside as a whole; outside, nothing is read.
    o = tl.max_contiguous(tl.multiple_of(tl.where(o_ok, group * C_out + o, 0), VECTOR), VECTOR)
    c = tl.max_contiguous(tl.multiple_of(tl.where(c_ok, c, 0), VECTOR), VECTOR)
    k_w = tap % kernel_w
    tap = tap // kernel_w
    k_h = tap % kernel_h
    tap = tap // kernel_h
    k_d = tap
    last_pixel = tl.minimum((split + 1) * share, pixels)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(split * share, last_pixel, BLOCK_K):
        pixel = start + tl.arange(0, BLOCK_K)
        pixel_ok = pixel < last_pixel
        o_w = pixel % out_w
        n = pixel // out_w
        o_h = n % out_h
        n = n // out_h
        o_d = n % out_d
        n = n // out_d
        inside = pixel_ok
        i_d = o_d * stride_d - pad_d + k_d * dil_d
        inside &= (i_d >= 0) & (i_d < in_d)
        i_h = o_h * stride_h - pad_h + k_h * dil_h
        inside &= (i_h >= 0) & (i_h < in_h)
        i_w = o_w * stride_w - pad_w + k_w * dil_w
        inside &= (i_w >= 0) & (i_w < in_w)
        y_row = tl.multiple_of(tl.where(pixel_ok, n * y_n + o_d * y_d + o_h * y_h + o_w * y_w, 0), VECTOR)
        x_row = tl.multiple_of(tl.where(inside, n * x_n + i_d * x_d + i_h * x_h + i_w * x_w + group * C_in, 0), VECTOR)
        a = tl.load(y_ptr + (o[:, None] + y_row[None, :]), mask=o_ok[:, None] & pixel_ok[None, :], other=0.0)
        b = tl.load(x_ptr + (x_row[:, None] + c[None, :]), mask=inside[:, None] & c_ok[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    arrived = splits - 1
    if splits > 1:
        tiles = tl.num_programs(0) // splits
        place = tile % tiles
        within = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        partial = partial_ptr + place.to(tl.int64) * (BLOCK_M * BLOCK_N)
        stride = tiles.to(tl.int64) * (BLOCK_M * BLOCK_N)
        tl.store(partial + split * stride + within, acc)
        # Every thread's part must be written before one thread says so.
        tl.debug_barrier()
        arrived = tl.atomic_add(count_ptr + place, 1, sem="acq_rel", scope="gpu")
        if arrived == splits - 1:
            acc = tl.zeros((BLOCK_M, BLOCK_N,), dtype=tl.float32)
            for other in range(splits):
                acc += tl.load(partial + other * stride + within, cache_modifier=".cg")
    w_row = tl.multiple_of(o * w_o + k_d * w_d + k_h * w_h + k_w * w_w, VECTOR)
    w_ok = o_ok[:, None] & c_ok[None, :] & (arrived == splits - 1)
    tl.store(w_ptr + (w_row[:, None] + c[None, :]), acc.to(w_ptr.dtype.element_ty), mask=w_ok)
