"""Gradient of the weight for tensors with any strides: a GEMM over pixels, split over programs.

Written by `python -m gen render` from templates/bwdw_any.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=bwdw3d_any
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ()



@triton.jit
def bwdw3d_any(
    x_ptr, w_ptr, y_ptr, count_ptr, partial_ptr,
    pixels, C_in, C_out,
    in_d, in_h, in_w, out_d, out_h, out_w,
    x_n, x_c, x_d, x_h, x_w, w_o, w_c, w_d, w_h, w_w, y_n, y_c, y_d, y_h, y_w,
    kernel_d, kernel_h, kernel_w, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, dil_d, dil_h, dil_w,
    tiles_m, tiles_n, groups, splits, share,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):
    """w[o, k = (c, tap)] = sum over pixels of y[pixel, o] * x[pixel at tap, c]; BLOCK_M rows o x BLOCK_N columns k."""
    tile = tl.program_id(0)
    tile_n = tile % tiles_n
    tile_m = tile // tiles_n % tiles_m
    group = tile // (tiles_n * tiles_m) % groups
    split = tile // (tiles_n * tiles_m * groups)
    o = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    o_ok = o < C_out
    o = tl.where(o_ok, group * C_out + o, 0)
    taps = kernel_d * kernel_h * kernel_w
    k = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k_ok = k < C_in * taps
    c = k // taps
    tap = k % taps
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
        inside = pixel_ok[:, None] & k_ok[None, :]
        i_d = (o_d * stride_d - pad_d)[:, None] + (k_d * dil_d)[None, :]
        inside &= (i_d >= 0) & (i_d < in_d)
        i_h = (o_h * stride_h - pad_h)[:, None] + (k_h * dil_h)[None, :]
        inside &= (i_h >= 0) & (i_h < in_h)
        i_w = (o_w * stride_w - pad_w)[:, None] + (k_w * dil_w)[None, :]
        inside &= (i_w >= 0) & (i_w < in_w)
        y_offset = (o * y_c)[:, None] + (n * y_n + o_d * y_d + o_h * y_h + o_w * y_w)[None, :]
        x_offset = (n * x_n)[:, None] + ((group * C_in + c) * x_c)[None, :] + i_d * x_d + i_h * x_h + i_w * x_w
        y_ok = o_ok[:, None] & pixel_ok[None, :]
        a = tl.load(y_ptr + tl.where(y_ok, y_offset, 0), mask=y_ok, other=0.0)
        b = tl.load(x_ptr + tl.where(inside, x_offset, 0), mask=inside, other=0.0)
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
    w_ok = o_ok[:, None] & k_ok[None, :] & (arrived == splits - 1)
    w_offset = (o * w_o)[:, None] + (c * w_c + k_d * w_d + k_h * w_h + k_w * w_w)[None, :]
    tl.store(w_ptr + tl.where(w_ok, w_offset, 0), acc.to(w_ptr.dtype.element_ty), mask=w_ok)
