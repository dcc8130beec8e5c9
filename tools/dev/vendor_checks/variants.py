"""Which kernels are compiled, and how: the variants that Tessera launches on GPUs, as data.

A Family is a kernel file, the kernels that are launched from it, and axes: every combination of one choice from each
axis is a variant, and a choice is one or more -D options, or others with their "-". `targets` names the targets
(targets.py) where the family is launched, if not everywhere. gemm_panel.cl and gemm_small.cl are for CPUs: no row here.
The backends' presets are read from their source (presets.py); run as a program, this fails if one is left out.
"""
import itertools
import sys
from collections import namedtuple

sys.dont_write_bytecode = True
import presets

Family = namedtuple("Family", "file kernels axes targets", defaults=(None,))
Variant = namedtuple("Variant", "file kernels options targets")


def axis(name, *values):
    return [f"{name}={value}" for value in values]


# runtime/base/gemm_facts.h, TSR_GEMM_TYPES_LIST. A weight in i8 has factors.
F32 = "REAL=float A_TYPE=F32 B_TYPE=F32 SCALED=0"
F64 = "REAL=double A_TYPE=F64 B_TYPE=F64 SCALED=0"
F16 = "REAL=float A_TYPE=F16 B_TYPE=F16 SCALED=0"
BF16 = "REAL=float A_TYPE=BF16 B_TYPE=BF16 SCALED=0"
F32_F16 = "REAL=float A_TYPE=F32 B_TYPE=F16 SCALED=0"
F32_BF16 = "REAL=float A_TYPE=F32 B_TYPE=BF16 SCALED=0"
F32_I8 = "REAL=float A_TYPE=F32 B_TYPE=I8 SCALED=1"
ALL_TYPES = [F32, F64, F32_F16, F32_BF16, F32_I8, F16, BF16]

PLAIN = "BIAS=0 UNARY=NONE GATE=0 RESIDUAL=0"
FULL = "BIAS=1 UNARY=GELU GATE=1 RESIDUAL=1"
AS_STORED = "A_TRANSPOSED=0 B_TRANSPOSED=0"
TRANSPOSED = ["A_TRANSPOSED=0 B_TRANSPOSED=1", "A_TRANSPOSED=1 B_TRANSPOSED=0", "A_TRANSPOSED=1 B_TRANSPOSED=1"]
ROW_MAJOR = ["B_PANEL=0 C_PANEL=0"]

# A GPU's work-item moves 16 bytes (runtime/device/opencl_map.c) and adds one lane (opencl_reduce.c).
VECTORS = ["REAL=float VECTOR=4", "REAL=double VECTOR=2"]
MAP = [VECTORS, ["A_PANEL=0 B_PANEL=0 OUT_PANEL=0 BLOCKS=0"]]
REDUCE = [axis("REAL", "float", "double"), ["VECTOR=1 LANES_PER_ITEM=1"]]

NVIDIA = ["sm_80", "sm_90a", "sm_120"]
AMD = ["gfx90a", "gfx942", "gfx1100", "gfx1201"]
INTEL = ["dg2", "pvc"]


def tiles(targets, backend, sub_group=0):
    """A backend's presets of gemm_tile.cl: tile_m tile_n tile_k item_m item_n vector buffers, as TSR_GPU_TILE."""
    f32, f64 = [presets.tile(backend, "" if backend == "cpu.c" else field) for field in ("f32", "f64")]
    names = ["TILE_M", "TILE_N", "TILE_K", "ITEM_M", "ITEM_N", "VECTOR", "BUFFERS", "SUB_GROUP"]
    narrow, wide = [[" ".join(map("{}={}".format, names, (*preset, sub_group)))] for preset in (f32, f64)]
    aligned, unaligned = [[f"A_ALIGNED={is_so} B_ALIGNED={is_so} C_ALIGNED={is_so}"] for is_so in (1, 0)]
    types = [kind for kind in ALL_TYPES if kind != F64]
    # In f64 gemm_finish activates what ReLU does not.
    full_f64 = FULL.replace("GELU", "RELU")
    for preset, kinds, turned, full in [(narrow, types, [F32, BF16], FULL), (wide, [F64], [F64], full_f64)]:
        for axes in [[aligned, kinds, [AS_STORED], ROW_MAJOR, [PLAIN, full]],
                     [aligned, turned, TRANSPOSED, ROW_MAJOR, [PLAIN]],
                     [unaligned, turned, [AS_STORED], ROW_MAJOR, [full]]]:
            yield Family("gemm_tile.cl", ["gemm_tile"], [preset, *axes], targets)


def matrix_units(targets, instruction):
    """The presets of gemm_mma.cl for an instruction: tile_m tile_n tile_k warp_m warp_n stages."""
    names = ["TILE_M", "TILE_N", "TILE_K", "WARP_M", "WARP_N", "STAGES"]
    registers = "-cl-intel-256-GRF-per-thread " if instruction.startswith("INTEL") else ""
    preset = [f"{registers}INSTRUCTION={instruction} EMULATE=0 " + " ".join(map("{}={}".format, names, sizes))
              for sizes in presets.matrix_units(instruction)]
    for axes in [[["ALIGNED=1"], [F16, BF16], [AS_STORED, *TRANSPOSED], ROW_MAJOR, [PLAIN]],
                 [["ALIGNED=0"], [BF16], [AS_STORED, *TRANSPOSED], ROW_MAJOR, [FULL]]]:
        yield Family("gemm_mma.cl", ["gemm_mma"], [preset, *axes], targets)


FAMILIES = [
    *tiles(NVIDIA, "nvidia.c"),
    *tiles(AMD, "amd.c"),
    *tiles(["dg2"], "intel.c", 8),
    *tiles(["pvc"], "intel.c", 16),
    *tiles(["spirv"], "gpu_gemm.c"),
    *tiles(["spirv"], "cpu.c"),
    *matrix_units(NVIDIA, "NVIDIA_MMA"),
    *matrix_units(["gfx90a", "gfx942"], "AMD_MFMA"),
    *matrix_units(["gfx1100"], "AMD_WMMA"),
    *matrix_units(["gfx1201"], "AMD_WMMA12"),
    *matrix_units(["dg2"], "INTEL_DPAS8"),
    *matrix_units(["pvc"], "INTEL_DPAS16"),
    Family("gemm_join.cl", ["gemm_join"], [["VECTOR=4 REAL=float", "VECTOR=2 REAL=double"], axis("SCALED", 0, 1), [FULL]]),
    Family("gemm_reference.cl", ["gemm_reference"], [["VECTOR=1"], ALL_TYPES, [AS_STORED], ROW_MAJOR, [PLAIN, FULL]]),
    Family("gemm_reference.cl", ["gemm_reference"], [["VECTOR=1"], [F32, F64], TRANSPOSED, ROW_MAJOR, [PLAIN]]),
    Family("gemm_finish.cl", ["gemm_finish"], [["VECTOR=4"], axis("REAL", "float", "double"), [FULL]]),
    Family("conv.cl", ["conv"], [axis("REAL", "float", "double"), ["KIND=FORWARD HAS_BIAS=1 UNARY=GELU",
                                                                  "KIND=INPUT HAS_BIAS=0 UNARY=NONE",
                                                                  "KIND=WEIGHT HAS_BIAS=0 UNARY=NONE",
                                                                  "KIND=BIAS HAS_BIAS=0 UNARY=NONE"]]),
    Family("pool.cl", ["pool"], [axis("REAL", "float", "double"), axis("GRADIENT", 0, 1), axis("MEAN", 0, 1),
                                 ["R=3 S=2 STRIDE_ROWS=2 STRIDE_COLUMNS=1 PADDING_ROWS=1 PADDING_COLUMNS=0"]]),
    Family("elementwise.cl", ["map"], MAP + [axis("OPERATION", "ADD", "MULTIPLY", "SCALE"), ["UNARY=NONE"]]),
    Family("elementwise.cl", ["map"], MAP + [axis("OPERATION", "APPLY", "APPLY_GRADIENT", "BIAS_APPLY"),
                                             axis("UNARY", "RELU", "GELU", "GELU_TANH", "SILU")]),
    Family("reduce.cl", ["reduce_lines", "reduce_rows", "reduce_parts"], REDUCE + [axis("OPERATION", "SUM", "MAX")]),
    Family("reduce.cl", ["reduce_lines", "reduce_parts"], REDUCE + [axis("OPERATION", "SQUARED_ERROR")]),
]


def all_variants():
    """Every variant, in the order of the rows above."""
    for family in FAMILIES:
        for choice in itertools.product(*family.axes):
            yield Variant(family.file, family.kernels, " ".join(choice), family.targets)


def main():
    """Nothing but the test that no preset is left out."""
    left_out = presets.unread()
    for row in left_out:
        print(f"{row} is compiled for no target: variants.py needs a row for it")
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
