"""Gradient of the input (or transposed convolution) of tensors with any strides: an implicit GEMM by phase.

Written by `python -m gen render` from templates/bwdx_any.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=bwdx3d_any
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ()



@triton.jit
def bwdx3d_any(
    x_ptr, w_ptr, b_ptr, y_ptr,
    pixels, C_in, C_out,
    in_d, in_h, in_w, out_d, out_h, out_w, cell_d, cell_h, cell_w,
    x_n, x_c, x_d, x_h, x_w, w_o, w_c, w_d, w_h, w_w, y_n, y_c, y_d, y_h, y_w,
    kernel_d, kernel_h, kernel_w, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, dil_d, dil_h, dil_w,
    step_d, step_h, step_w, hop_d, hop_h, hop_w,
    tiles_m, tiles_n, has_bias, b_c,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):
    """x[c, pixel] = b[c] + sum over k = (o, tap) of w[k, c] * y[k, pixel]; BLOCK_N channels x BLOCK_M pixels."""
    # A flat grid, since only the x axis may pass 65,535: channel tiles, pixel tiles of a phase, phases, groups.
    tile = tl.program_id(0)
    tile_n = tile % tiles_n
    tile_m = tile // tiles_n % tiles_m
    group = tile // (tiles_n * tiles_m)
    phase_w = group % stride_w
    group = group // stride_w
    phase_h = group % stride_h
    group = group // stride_h
    phase_d = group % stride_d
    group = group // stride_d
    pixel = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ok = c < C_in
    i_w = pixel % cell_w
    n = pixel // cell_w
    i_h = n % cell_h
    n = n // cell_h
    i_d = n % cell_d
    n = n // cell_d
    pixel_ok = pixel < pixels
    i_d = i_d * stride_d + phase_d
    pixel_ok &= i_d < in_d
    first_d = step_d * 0
    while (first_d < step_d) & ((phase_d + pad_d - first_d * dil_d) % stride_d != 0):
        first_d += 1
    # No tap of this phase meets an output position when the search ran through.
    taps_d = tl.where(first_d < step_d, tl.maximum(tl.cdiv(kernel_d - first_d, step_d), 0), 0)
    start_d = (i_d + pad_d - first_d * dil_d) // stride_d
    i_h = i_h * stride_h + phase_h
    pixel_ok &= i_h < in_h
    first_h = step_h * 0
    while (first_h < step_h) & ((phase_h + pad_h - first_h * dil_h) % stride_h != 0):
        first_h += 1
    # No tap of this phase meets an output position when the search ran through.
    taps_h = tl.where(first_h < step_h, tl.maximum(tl.cdiv(kernel_h - first_h, step_h), 0), 0)
    start_h = (i_h + pad_h - first_h * dil_h) // stride_h
    i_w = i_w * stride_w + phase_w
    pixel_ok &= i_w < in_w
    first_w = step_w * 0
    while (first_w < step_w) & ((phase_w + pad_w - first_w * dil_w) % stride_w != 0):
        first_w += 1
    # No tap of this phase meets an output position when the search ran through.
    taps_w = tl.where(first_w < step_w, tl.maximum(tl.cdiv(kernel_w - first_w, step_w), 0), 0)
    start_w = (i_w + pad_w - first_w * dil_w) // stride_w
    visits = taps_d * taps_h * taps_w
    # Divisors must not be 0 even where nothing is visited: the pipeliner divides before it knows, and LLVM then takes
    # the loop to run at least once.
    taps_d = tl.maximum(taps_d, 1)
    taps_h = tl.maximum(taps_h, 1)
    taps_w = tl.maximum(taps_w, 1)
    taps = taps_d * taps_h * taps_w
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, C_out * visits, BLOCK_K):
        k = k + tl.arange(0, BLOCK_K)
        k_ok = k < C_out * taps
        o = group * C_out + k // taps
        tap = k % taps
        t_w = tap % taps_w
        tap = tap // taps_w
        t_h = tap % taps_h
        tap = tap // taps_h
        t_d = tap
        k_d = first_d + t_d * step_d
        k_h = first_h + t_h * step_h
        k_w = first_w + t_w * step_w
        inside = k_ok[:, None] & pixel_ok[None, :]
        o_d = start_d[None, :] - (t_d * hop_d)[:, None]
        inside &= (o_d >= 0) & (o_d < out_d)
        o_h = start_h[None, :] - (t_h * hop_h)[:, None]
        inside &= (o_h >= 0) & (o_h < out_h)
        o_w = start_w[None, :] - (t_w * hop_w)[:, None]
        inside &= (o_w >= 0) & (o_w < out_w)
        y_offset = (n * y_n)[None, :] + (o * y_c)[:, None] + o_d * y_d + o_h * y_h + o_w * y_w
        w_offset = (c * w_c)[:, None] + (o * w_o + k_d * w_d + k_h * w_h + k_w * w_w)[None, :]
        w_ok = c_ok[:, None] & k_ok[None, :]
        a = tl.load(w_ptr + tl.where(w_ok, w_offset, 0), mask=w_ok, other=0.0)
        b = tl.load(y_ptr + tl.where(inside, y_offset, 0), mask=inside, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    column = tl.where(c_ok, group * C_in + c, 0)
    if has_bias:
        acc += tl.load(b_ptr + column * b_c, mask=c_ok, other=0.0).to(tl.float32)[:, None]
    x_ok = c_ok[:, None] & pixel_ok[None, :]
    x_offset = (column * x_c)[:, None] + (n * x_n + i_d * x_d + i_h * x_h + i_w * x_w)[None, :]
    tl.store(x_ptr + tl.where(x_ok, x_offset, 0), acc.to(x_ptr.dtype.element_ty), mask=x_ok)
