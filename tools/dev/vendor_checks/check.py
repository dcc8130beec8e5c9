#!/usr/bin/env python3
"""Compile every kernel variant for every vendor target whose compilers are here; find spills, private memory,
unresolved calls and what does not compile; compare with docs/vendor-kernels.md.

Exit status: 0 nothing found, 1 something found, 77 no compiler here. See README.md beside this file.
"""
import argparse
import concurrent.futures
import os
import sys
import tempfile
from collections import namedtuple

sys.dont_write_bytecode = True
from reports import Refused
from table import Table, cell_of, differences, read_table
from targets import TARGETS
from variants import all_variants

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "../../.."))
KERNELS = os.path.join(ROOT, "cl_kernels")
TABLE = os.path.join(ROOT, "docs", "vendor-kernels.md")
PLANTED = os.path.join(HERE, "planted")
SHOWN_MAX = 20  # differences from the table
NOTHING_TO_CHECK_WITH = 77

Job = namedtuple("Job", "target file kernels options")
Finding = namedtuple("Finding", "job what figure")


def findings_of(job, report):
    """What is wrong with one program."""
    for name in report.unresolved:
        yield Finding(job, "unresolved call", name)
    for name in job.kernels:
        if name not in report.kernels:
            if not report.unresolved:
                yield Finding(job, "kernel missing", name)
            continue
        figures = report.kernels[name]
        if figures.spills:
            yield Finding(job, f"{name}: spills", figures.spills)
        if figures.private:
            yield Finding(job, f"{name}: private memory", figures.private)


def do(job, folder):
    """The kernels' figures and the findings of one job."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            report = job.target.vendor.measure(job.target, os.path.join(folder, job.file), job.options, scratch)
        except Refused as refused:
            return {}, [Finding(job, "not compiled", refused)]
    return report.kernels, list(findings_of(job, report))


def do_all(jobs, folder, threads):
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda job: do(job, folder), jobs))


def is_launched(variant, target):
    return (not variant.targets or target.name in variant.targets) and (target.f64 or "double" not in variant.options)


def usable_targets(names):
    """Those whose compilers are here. Says what is missing for the others."""
    unknown = set(names) - {target.name for target in TARGETS}
    if unknown:
        sys.exit(f"check.py: no target {', '.join(sorted(unknown))}; there are {', '.join(t.name for t in TARGETS)}")
    usable = []
    for target in TARGETS:
        if names and target.name not in names:
            continue
        lack = target.vendor.missing()
        reason = f"needs {lack}" if lack else target.vendor.unknown(target)
        if reason:
            print(f"{target.name}: skipped, {reason}")
        else:
            usable.append(target)
    for note in {target.vendor.note() for target in usable} - {None}:
        print(note)
    return usable


def new_table(old, variants, jobs, results, usable):
    """What was measured now; what was not is as it was."""
    table = Table()
    table.versions = dict(old.versions)
    measured = {target.name: target for target in usable if not target.vendor.note()}
    for target in measured.values():
        table.versions[target.name] = target.vendor.version(target)
    for variant in variants:
        for kernel in variant.kernels:
            key = (variant.file, kernel, variant.options)
            was = old.cells.get(key, {})
            table.cells[key] = {target.name: was.get(target.name, "?") if is_launched(variant, target) else "-"
                                for target in TARGETS}
    for job, (kernels, _) in zip(jobs, results):
        if job.target.name not in measured:
            continue
        for kernel in job.kernels:
            figures = kernels.get(kernel)
            table.cells[job.file, kernel, job.options][job.target.name] = cell_of(figures) if figures else "fails"
    return table, list(measured)


def print_summary(usable, jobs, results):
    print(f"\n{'target':9}{'programs':>9}{'findings':>9}{'seen':>6}  compilers")
    for target in usable:
        mine = [(job, result) for job, result in zip(jobs, results) if job.target is target]
        found = sum(len(findings) for _, (_, findings) in mine)
        print(f"{target.name:9}{len(mine):9}{found:9}{sum(len(k) for _, (k, _) in mine):6}  "
              f"{target.vendor.version(target)}")


def print_findings(results):
    count = 0
    for _, findings in results:
        for finding in findings:
            count += 1
            print(f"FAILED {finding.job.target.name}: {finding.job.file} {finding.job.options}: {finding.what}: "
                  f"{finding.figure}")
    return count


def check(arguments):
    usable = usable_targets(arguments.target)
    if not usable:
        print("no vendor's compiler is here: tools/test.sh --vendor-checks installs what Debian has")
        return NOTHING_TO_CHECK_WITH
    variants = list(all_variants())
    chosen = [variant for variant in variants if not arguments.file or variant.file in arguments.file]
    jobs = [Job(target, variant.file, variant.kernels, variant.options)
            for variant in chosen for target in usable if is_launched(variant, target)]
    print(f"compiling {len(jobs)} programs", flush=True)
    results = do_all(jobs, KERNELS, arguments.jobs)
    print_summary(usable, jobs, results)
    count = print_findings(results)

    old = read_table(TABLE)
    table, measured = new_table(old, variants, jobs, results, usable)
    if arguments.update:
        table.write(TABLE, [target.name for target in TARGETS])
        print(f"wrote {os.path.relpath(TABLE)}")
    elif changes := list(differences(old, table, measured)):
        for change in changes[:SHOWN_MAX]:
            print(f"CHANGED {change}")
        print(f"FAILED docs/vendor-kernels.md: {len(changes)} differences; look at them, then run "
              "tools/dev/vendor_checks/check.py --update")
        count += 1
    return 1 if count else 0


# Planted kernel -> what must be found in it, with any compiler; SPIR-V has neither registers nor private memory.
PLANTED_FINDINGS = {
    "broken.cl": {"not compiled"},
    "clean.cl": set(),
    "private.cl": {"planted: private memory", "planted: spills"},
    "spill.cl": {"planted: spills"},
    "unresolved.cl": {"unresolved call"},
}
NEEDS_FIGURES = {"private.cl", "spill.cl"}


def self_test(arguments):
    """Each planted kernel must be found by each target, and nothing in the clean one."""
    usable = usable_targets(arguments.target)
    if not usable:
        return NOTHING_TO_CHECK_WITH
    jobs = [Job(target, file, ["planted"], "") for file in PLANTED_FINDINGS for target in usable
            if not (file in NEEDS_FIGURES and target.name == "spirv")
            and not (file == "spill.cl" and target.vendor.note())]
    bad = 0
    for job, (_, findings) in zip(jobs, do_all(jobs, PLANTED, arguments.jobs)):
        expected, found = PLANTED_FINDINGS[job.file], {finding.what for finding in findings}
        right = bool(found & expected) if expected else not found
        bad += not right
        print(f"{'ok    ' if right else 'FAILED'} {job.target.name}: {job.file}: {', '.join(sorted(found)) or 'nothing'}")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="compilers at a time")
    parser.add_argument("--target", action="append", default=[], help="this target only; may be repeated")
    parser.add_argument("--file", action="append", default=[], help="this kernel file only; may be repeated")
    parser.add_argument("--update", action="store_true", help="write docs/vendor-kernels.md")
    parser.add_argument("--self-test", action="store_true", help="compile the planted kernels: all must be found")
    arguments = parser.parse_args()
    return self_test(arguments) if arguments.self_test else check(arguments)


if __name__ == "__main__":
    sys.exit(main())
