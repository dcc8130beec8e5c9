#!/usr/bin/env python3
"""Write a linker version script that exports what the public headers declare, and nothing else:
exports.py OUT HEADER.h ..."""
import re
import sys

out, headers = sys.argv[1], sys.argv[2:]
names = set()
for path in headers:
    text = re.sub(r"/\*.*?\*/", "", open(path).read(), flags=re.S)
    text = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.M | re.S)
    text = re.sub(r"static inline .*?\n}", "", text, flags=re.S)
    names.update(re.findall(r"\b(tsr_\w+)\s*\([^;{}]*\)\s*;", text))
with open(out, "w") as script:
    script.write("{\n  global:\n")
    script.write("".join(f"    {name};\n" for name in sorted(names)))
    script.write("  local:\n    *;\n};\n")
