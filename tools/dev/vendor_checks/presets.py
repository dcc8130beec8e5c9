"""The presets of the backends, read from their source, so that nobody has to repeat them.

tile(file, field) is a row `.f32 = TSR_GPU_TILE(...)` of backends/<file>, without the parts that k is cut into;
tile(file) the one that stands by itself. matrix_units(instruction) are the rows VARIANT(instruction, ...) of
backends/gpu_mma.c. unread() names the rows that nobody has asked for.
"""
import glob
import os
import re

BACKENDS = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../backends"))
TILE = re.compile(r"(?:\.(f32|f64) = )?\bTSR_GPU_TILE\(([\d, ]+)\)")
UNITS = re.compile(r"\bVARIANT\((\w+), ([\d, ]+)\)")


def numbers(text):
    return tuple(int(number) for number in text.split(","))


def read_rows():
    """(file, name) -> the distinct rows there, in order."""
    rows = {}
    for path in sorted(glob.glob(os.path.join(BACKENDS, "*.c"))):
        file = os.path.basename(path)
        with open(path, encoding="utf-8") as source:
            text = source.read()
        found = [(file, name or "", numbers(sizes)[:-1]) for name, sizes in TILE.findall(text)]
        found += [(file, name, numbers(sizes)) for name, sizes in UNITS.findall(text)]
        for file, name, row in found:
            rows.setdefault((file, name), []).append(row)
    return {key: list(dict.fromkeys(values)) for key, values in rows.items()}


ROWS = read_rows()
asked_for = set()


def rows_of(file, name):
    if (file, name) not in ROWS:
        raise SystemExit(f"backends/{file}: no row {name or 'TSR_GPU_TILE'} that presets.py can read")
    asked_for.add((file, name))
    return ROWS[file, name]


def tile(file, field=""):
    rows = rows_of(file, field)
    if len(rows) != 1:
        raise SystemExit(f"backends/{file}: {len(rows)} rows TSR_GPU_TILE for {field or 'no field'}, expected 1")
    return rows[0]


def matrix_units(instruction):
    return rows_of("gpu_mma.c", instruction)


def unread():
    return [f"backends/{file}: {name or 'TSR_GPU_TILE'} {row}"
            for (file, name), rows in ROWS.items() if (file, name) not in asked_for for row in rows]
