"""The dispatch module of this build: its versions, its targets, and what each kernel asks of a problem.

Written by `python -m gen render` from templates/dispatch.py.j2; edit that or gen/matrix.toml, not this.
"""

FORMAT = 1
MATRIX = "f99ed8cc2cd04ad97d32ce86000379769eb55ef65767be07893d108d669433d9"
TRITON = "3.8.0"
PTXAS = "12.9.86"
TARGETS = (
    "sm_80",
    "sm_86",
    "sm_89",
    "sm_90a",
    "sm_100a",
    "sm_120a",
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1100",
)

# kernel: (op, rank, constraints); a constraint is (name of a value of the problem, relation, value).
KERNELS = {
    "fwd1d_any": (
        "fwd", 1,
        (
            ('x_extent', '<=', 2147418111),
            ('w_extent', '<=', 2147418111),
            ('y_extent', '<=', 2147418111),
            ('pixels', '<=', 2147418111),
            ('reduction', '<=', 2147418111),
            ('reach', '<=', 2147418111),
        ),
    ),
    "fwd1d_any_i64": (
        "fwd", 1,
        (
        ),
    ),
    "fwd1d_cl": (
        "fwd", 1,
        (
            ('x_c', 'in', (0, 1)),
            ('w_c', 'in', (0, 1)),
            ('y_c', 'in', (0, 1)),
            ('x_extent', '<=', 2147418111),
            ('w_extent', '<=', 2147418111),
            ('y_extent', '<=', 2147418111),
            ('pixels', '<=', 2147418111),
            ('reduction', '<=', 2147418111),
            ('reach', '<=', 2147418111),
        ),
    ),
    "fwd2d_any": (
        "fwd", 2,
        (
            ('x_extent', '<=', 2147418111),
            ('w_extent', '<=', 2147418111),
            ('y_extent', '<=', 2147418111),
            ('pixels', '<=', 2147418111),
            ('reduction', '<=', 2147418111),
            ('reach', '<=', 2147418111),
        ),
    ),
    "fwd2d_any_i64": (
        "fwd", 2,
        (
        ),
    ),
    "fwd2d_cl": (
        "fwd", 2,
        (
            ('x_c', 'in', (0, 1)),
            ('w_c', 'in', (0, 1)),
            ('y_c', 'in', (0, 1)),
            ('x_extent', '<=', 2147418111),
            ('w_extent', '<=', 2147418111),
            ('y_extent', '<=', 2147418111),
            ('pixels', '<=', 2147418111),
            ('reduction', '<=', 2147418111),
            ('reach', '<=', 2147418111),
        ),
    ),
    "fwd2d_cl_k1": (
        "fwd", 2,
        (
            ('kernel_h', '==', 1),
            ('kernel_w', '==', 1),
            ('x_c', 'in', (0, 1)),
            ('w_c', 'in', (0, 1)),
            ('y_c', 'in', (0, 1)),
            ('x_extent', '<=', 2147418111),
            ('w_extent', '<=', 2147418111),
            ('y_extent', '<=', 2147418111),
            ('pixels', '<=', 2147418111),
            ('reduction', '<=', 2147418111),
            ('reach', '<=', 2147418111),
        ),
    ),
    "fwd2d_cl_k3": (
        "fwd", 2,
        (
            ('kernel_h', '==', 3),
            ('kernel_w', '==', 3),
            ('x_c', 'in', (0, 1)),
            ('w_c', 'in', (0, 1)),
            ('y_c', 'in', (0, 1)),
            ('x_extent', '<=', 2147418111),
            ('w_extent', '<=', 2147418111),
            ('y_extent', '<=', 2147418111),
            ('pixels', '<=', 2147418111),
            ('reduction', '<=', 2147418111),
            ('reach', '<=', 2147418111),
        ),
    ),
    "fwd2d_clodd": (
        "fwd", 2,
        (
            ('x_c', 'in', (0, 1)),
            ('w_c', 'in', (0, 1)),
            ('y_c', 'in', (0, 1)),
            ('x_extent', '<=', 2147418111),
            ('w_extent', '<=', 2147418111),
            ('y_extent', '<=', 2147418111),
            ('pixels', '<=', 2147418111),
            ('reduction', '<=', 2147418111),
            ('reach', '<=', 2147418111),
        ),
    ),
    "fwd2d_flat": (
        "fwd", 2,
        (
            ('x_extent', '<=', 2147418111),
            ('w_extent', '<=', 2147418111),
            ('y_extent', '<=', 2147418111),
            ('pixels', '<=', 2147418111),
            ('reduction', '<=', 2147418111),
            ('reach', '<=', 2147418111),
        ),
    ),
    "fwd3d_any": (
        "fwd", 3,
        (
            ('x_extent', '<=', 2147418111),
            ('w_extent', '<=', 2147418111),
            ('y_extent', '<=', 2147418111),
            ('pixels', '<=', 2147418111),
            ('reduction', '<=', 2147418111),
            ('reach', '<=', 2147418111),
        ),
    ),
    "fwd3d_any_i64": (
        "fwd", 3,
        (
        ),
    ),
    "fwd3d_cl": (
        "fwd", 3,
        (
            ('x_c', 'in', (0, 1)),
            ('w_c', 'in', (0, 1)),
            ('y_c', 'in', (0, 1)),
            ('x_extent', '<=', 2147418111),
            ('w_extent', '<=', 2147418111),
            ('y_extent', '<=', 2147418111),
            ('pixels', '<=', 2147418111),
            ('reduction', '<=', 2147418111),
            ('reach', '<=', 2147418111),
        ),
    ),
}
