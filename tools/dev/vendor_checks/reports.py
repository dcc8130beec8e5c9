"""Reads what the compilers report: registers, spills, private memory, local memory, unresolved calls."""
import re
import struct
from collections import namedtuple

# registers is a text. spills and private count bytes, but on AMD, whose compiler counts spilled registers.
# None = this compiler does not tell.
Figures = namedtuple("Figures", "registers spills private local")
# kernels: name -> Figures. unresolved: names of functions that are called and nowhere defined.
Report = namedtuple("Report", "kernels unresolved")


class Refused(Exception):
    """A compiler did not compile a kernel; the text says why."""


def read_ptx(text):
    """Functions with a body end their parameters with ")" and "{", declarations with ")" and ";"."""
    text = re.sub(r"//.*", "", text)
    kernels = {}
    for body in re.finditer(r"\.entry\s+([\w$]+)\s*\(.*?\)[^{]*\{(.*?)\n\}", text, re.S):
        private = sum(int(size) for size in re.findall(r"\.local\s[^\n]*\[(\d+)\];", body.group(2)))
        kernels[body.group(1)] = Figures(None, None, private, None)
    declared = re.findall(r"\.func\s+(?:\([^)]*\)\s*)?([\w$]+)\s*(?:\([^)]*\))?\s*(?:\.noreturn\s*)?;", text)
    defined = re.findall(r"\.func\s+(?:\([^)]*\)\s*)?([\w$]+)\s*(?:\([^)]*\))?[^;{]*\{", text)
    return Report(kernels, sorted(set(declared) - set(defined)))


def read_ptxas(log):
    kernels = {}
    for part in re.split(r"Compiling entry function '", log)[1:]:
        name = part.split("'", 1)[0]
        stack, spills = 0, 0
        for frame, stores, loads in re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", part):
            stack, spills = stack + int(frame), spills + max(int(stores), int(loads))
        registers, local = re.search(r"Used (\d+) registers", part), re.search(r"(\d+) bytes smem", part)
        # The frame holds spilled registers too.
        kernels[name] = Figures(registers.group(1), spills, max(0, stack - spills), int(local.group(1)) if local else 0)
    return Report(kernels, [])


def read_amd(notes):
    """An unresolved call is an error of the linker, which Amd.measure() has reported."""
    kernels = {}
    for entry in re.split(r"(?m)^  - (?=\.)", notes.split("amdhsa.kernels:", 1)[-1])[1:]:
        values = dict(re.findall(r"(?m)^(?:    )?\.(\w+): +(\S+)", entry))
        private = int(values["private_segment_fixed_size"])
        if values.get("uses_dynamic_stack") == "true":
            private = max(private, 1)
        spills = int(values["vgpr_spill_count"]) + int(values["sgpr_spill_count"])
        kernels[values["name"]] = Figures(values["vgpr_count"], spills, private, int(values["group_segment_fixed_size"]))
    return Report(kernels, [])


def elf_sections(data):
    """Name -> (contents, index of the linked section), and the sections by index."""
    offset, = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    contents = [data[header[4]:header[4] + header[5]] for header in headers]
    named = {text_at(contents[names_at], header[0]): (part, header[6]) for header, part in zip(headers, contents)}
    return named, contents


def text_at(strings, offset):
    return strings[offset:strings.index(b"\0", offset)].decode()


def undefined_symbols(named, contents):
    symbols, strings = named[".symtab"]
    for at in range(24, len(symbols), 24):
        name, _, _, section = struct.unpack_from("<IBBH", symbols, at)
        if section == 0:
            yield text_at(contents[strings], name)


def read_intel(binary, log):
    """Registers are counted as GRFs x SIMD width. What the compiler spilled it says in its log alone: in the binary,
    spilled registers and private arrays may share one buffer."""
    named, contents = elf_sections(binary)
    info = named[".ze_info"][0].decode(errors="replace").split("kernels_misc_info:")[0]
    spilled = set(re.findall(r"kernel (\S+)\s+compiled SIMD\d+ allocated \d+ regs and spilled", log))
    kernels = {}
    for entry in re.split(r"(?m)^  - (?=name:)", info)[1:]:
        name = re.match(r"name:\s+(\S+)", entry).group(1)
        value = lambda key: (re.search(rf"(?m)^      {key}:\s+(\d+)", entry) or [0, "0"])[1]
        memory = re.findall(r"- type:\s+(\w+)\s+usage:\s+(\w+)\s+size:\s+(\d+)", entry)
        total = sum(int(size) for _, _, size in memory)
        spill_usages = {"spill_fill_space", "single_space"} if name in spilled else {"spill_fill_space"}
        spills = sum(int(size) for _, usage, size in memory if usage in spill_usages)
        kernels[name] = Figures(f"{value('grf_count')}x{value('simd_size')}", spills, total - spills,
                                int(value("slm_size")))
    kernels.pop("Intel_Symbol_Table_Void_Program", None)
    return Report(kernels, sorted(undefined_symbols(named, contents)))


def read_spirv(text):
    kernels = {name: Figures("valid", None, None, None)
               for name in re.findall(r'OpEntryPoint Kernel %\S+ "([^"]+)"', text)}
    imported = re.findall(r'LinkageAttributes "([^"]+)" Import', text)
    return Report(kernels, sorted(name for name in imported if not name.startswith("__spirv_BuiltIn")))
