"""What kernels are compiled for: one row per target, and how each vendor's compiler is called and its report is read.

measure(target, source, options, folder) compiles one program into an empty folder and returns a Report. A compiler
that refuses the program, takes too long or leaves nothing to read raises Refused.
"""
import glob
import os
import re
import shutil
import subprocess
from collections import namedtuple

from reports import Refused, Report, read_amd, read_intel, read_ptx, read_ptxas, read_spirv

Target = namedtuple("Target", "name vendor f64 details")

SECONDS_MAX = 300  # for one compilation
CL = ["-x", "cl", "-cl-std=CL1.2", "-w", "-Xclang", "-finclude-default-header"]  # as opencl_program.c has it


def run(command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              text=True, errors="replace", timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise Refused(f"{os.path.basename(command[0])} took more than {SECONDS_MAX} s")
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if "warning" not in line and line.strip()]
        first = next((line for line in lines if re.search("error|fatal|undefined", line, re.I)), (lines or ["?"])[0])
        raise Refused(f"{os.path.basename(command[0])}: {first}")
    return done.stdout


def first_line(pattern, *command):
    found = re.search(pattern, run(list(command)))
    return found.group(1) if found else "?"


def clang_version(clang):
    return "clang " + first_line(r"version ([\d.]+)", clang, "--version")


def first_found(*names):
    return next((name for name in names if shutil.which(name)), None)


def defines(options):
    return [option if option.startswith("-") else "-D" + option for option in options.split()]


class Vendor:
    """missing(): what cannot be found, and the Debian package that has it; None if nothing is. version(target): of
    the compilers, as the table names them. measure(): see above."""

    def unknown(self, target):
        """Why these compilers cannot do this target, or None."""
        return None

    def note(self):
        """What is left out of the figures, or None."""
        return None


class Nvidia(Vendor):
    """clang makes PTX, ptxas machine code. NVIDIA's driver has a front end of its own, so that its figures may
    differ; what spills here, though, asks for too much there too. Without ptxas the PTX text alone is judged."""

    LIBRARY = "/usr/lib/clc/nvptx64--nvidiacl.bc"
    NOT_IN_LIBRARY = ["-Dnative_exp=exp", "-Dnative_exp2=exp2", "-Dnative_log=log", "-Dnative_log2=log2"]

    def __init__(self):
        self.clang = first_found("clang-15", "clang-19")
        self.ptxas = shutil.which("ptxas") or shutil.which("/usr/local/cuda/bin/ptxas")

    def missing(self):
        if not self.clang:
            return "clang-15 (package clang-15)"
        return None if os.path.exists(self.LIBRARY) else self.LIBRARY + " (package libclc-15)"

    def note(self):
        return None if self.ptxas else "no ptxas (package nvidia-cuda-toolkit, non-free): PTX is judged, not measured"

    def unknown(self, target):
        arch = target.details["arch"]
        if self.ptxas and not re.search(rf"\b{arch}\b", run([self.ptxas, "--help"])):
            return f"{self.ptxas} does not know {arch}"
        return None

    def version(self, target):
        ptxas = "ptxas " + first_line(r"V([\d.]+)", self.ptxas, "--version") if self.ptxas else "no ptxas"
        return f"{clang_version(self.clang)}, {ptxas}"

    def measure(self, target, source, options, folder):
        ptx, arch = os.path.join(folder, "k.ptx"), target.details["arch"]
        run([self.clang, *CL, "-target", "nvptx64-nvidia-nvcl", "-O3", "-Xclang", "-target-cpu", "-Xclang", "sm_80",
             "-Xclang", "-target-feature", "-Xclang", "+ptx75", "-Xclang", "-mlink-builtin-bitcode", "-Xclang",
             self.LIBRARY, *self.NOT_IN_LIBRARY, "-I", os.path.dirname(source), *defines(options), "-S", "-o", ptx,
             source])
        text = open(ptx).read()
        text = re.sub(r"(?m)^\.version .*", ".version " + target.details["ptx"], text)
        text = re.sub(r"(?m)^\.target .*", ".target " + arch, text)
        open(ptx, "w").write(text)
        report = read_ptx(text)
        if self.ptxas and not report.unresolved:
            log = run([self.ptxas, "-arch=" + arch, "-v", ptx, "-o", os.path.join(folder, "k.cubin")])
            return read_ptxas(log)
        return report


class Amd(Vendor):
    """clang and lld link AMD's device library; the code object's notes have the figures."""

    BITCODE = "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode/"
    LIBRARIES = ["opencl", "ocml", "ockl", "oclc_daz_opt_off", "oclc_unsafe_math_off", "oclc_finite_only_off",
                 "oclc_correctly_rounded_sqrt_on", "oclc_abi_version_500"]

    def missing(self):
        for program, package in [("clang-19", "clang-19"), ("ld.lld-19", "lld-19"), ("llvm-readelf-19", "llvm-19")]:
            if not shutil.which(program):
                return f"{program} (package {package})"
        return None if os.path.exists(self.BITCODE + "ocml.bc") else self.BITCODE + " (package rocm-device-libs)"

    def version(self, target):
        return clang_version("clang-19")

    def measure(self, target, source, options, folder):
        code = os.path.join(folder, "k.co")
        libraries = self.LIBRARIES + target.details["libraries"]
        linked = sum((["-Xclang", "-mlink-builtin-bitcode", "-Xclang", f"{self.BITCODE}{name}.bc"]
                      for name in libraries), [])
        compile_and_link = ["clang-19", *CL, "-target", "amdgcn-amd-amdhsa", "-mcpu=" + target.name,
                            "-mcode-object-version=5",
                            "-nogpulib", "-O3", *linked, "-I", os.path.dirname(source), *defines(options),
                            "-fuse-ld=lld-19", "-o", code, source]
        try:
            run(compile_and_link)
        except Refused as refused:
            unresolved = re.search(r"undefined (?:hidden )?symbol: (\S+)", str(refused))
            if not unresolved:
                raise
            return Report({}, [unresolved.group(1)])
        return read_amd(run(["llvm-readelf-19", "--notes", code]))


class Intel(Vendor):
    """ocloc says "Build succeeded" for unknown functions too: its symbol table tells. Offline it declares no extension
    of the device."""

    EXTENSIONS = "-Dcl_intel_subgroup_matrix_multiply_accumulate=1 -Dcl_intel_subgroup_local_block_io=1"

    def missing(self):
        return None if shutil.which("ocloc") else "ocloc (package intel-opencl-icd)"

    def version(self, target):
        return "ocloc " + first_line(r"(?m)^ii\s+intel-opencl-icd\S*\s+([\d.]+)", "dpkg", "-l", "intel-opencl-icd")

    def measure(self, target, source, options, folder):
        flags = ["-cl-std=CL1.2", "-w", self.EXTENSIONS, "-I", os.path.dirname(source), *defines(options)]
        log = run(["ocloc", "compile", "-file", source, "-device", target.details["device"], "--format", "zebin",
                   "-options", " ".join(flags), "-out_dir", folder])
        binaries = glob.glob(os.path.join(folder, "*.bin"))
        if not binaries:
            raise Refused("ocloc: " + " ".join(log.split())[:200])
        return read_intel(open(binaries[0], "rb").read(), log)


class Spirv(Vendor):
    """Valid, and nothing unresolved. No figures: SPIR-V has no registers. At -O1 and up clang's is not valid."""

    PAIRS = [("clang-15", "llvm-spirv-15"), ("clang-19", "llvm-spirv-19")]

    def __init__(self):
        self.pair = next((pair for pair in self.PAIRS if all(map(shutil.which, pair))), None)

    def missing(self):
        if not self.pair:
            return "clang-15 and llvm-spirv-15 (packages of these names)"
        return None if shutil.which("spirv-val") else "spirv-val (package spirv-tools)"

    def version(self, target):
        return f"{clang_version(self.pair[0])}, spirv-val {first_line(r'v([0-9.]+)', 'spirv-val', '--version')}"

    def measure(self, target, source, options, folder):
        bitcode, module = os.path.join(folder, "k.bc"), os.path.join(folder, "k.spv")
        run([self.pair[0], *CL, "-target", "spir64-unknown-unknown", "-O0", "-emit-llvm", "-c", "-I",
             os.path.dirname(source), *defines(options), "-o", bitcode, source])
        run([self.pair[1], bitcode, "-o", module])
        run(["spirv-val", module])
        return read_spirv(run(["spirv-dis", module]))


NVIDIA, AMD, INTEL, SPIRV = Nvidia(), Amd(), Intel(), Spirv()
WAVE64 = ["oclc_isa_version_90a", "oclc_wavefrontsize64_on"]
WAVE32 = ["oclc_isa_version_1030", "oclc_wavefrontsize64_off"]

# Name, vendor, whether kernels in f64 are launched there, details for that vendor's compiler.
TARGETS = [
    Target("sm_80", NVIDIA, True, {"arch": "sm_80", "ptx": "7.5"}),
    Target("sm_90a", NVIDIA, True, {"arch": "sm_90a", "ptx": "8.0"}),
    Target("sm_120", NVIDIA, True, {"arch": "sm_120", "ptx": "8.7"}),
    Target("gfx90a", AMD, True, {"libraries": WAVE64}),
    Target("gfx942", AMD, True, {"libraries": WAVE64}),
    Target("gfx1100", AMD, True, {"libraries": WAVE32}),
    Target("gfx1201", AMD, True, {"libraries": WAVE32}),
    Target("dg2", INTEL, False, {"device": "dg2-g10"}),  # Arc has no f64
    Target("pvc", INTEL, True, {"device": "pvc"}),
    Target("spirv", SPIRV, True, {}),
]
