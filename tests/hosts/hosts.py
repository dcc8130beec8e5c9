"""hosts.py: several "hosts" on this machine: network namespaces behind a bridge, each with a host name and processes
of its own, whose links can be made slow, or cut.

All lives in namespaces of the test alone, which vanish with its last process: whatever happens to the test, nothing
stays, and tests do not meet. It needs root, or a kernel that lets users make namespaces."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mpi"))
from job import find_mpiexec, skip  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
INSIDE = "TSR_TEST_HOSTS_INSIDE"
# As UCX, under MPICH, has to be told, lest it find a way around the network.
OVER_TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}


def _run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def name(number):
    return "host%d" % number


def _bring_up(count):
    _run("mount", "-t", "tmpfs", "tessera", "/run")  # names of network namespaces, for us alone
    os.mkdir("/run/netns")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "bridge0", "type", "bridge")
    _run("ip", "link", "set", "bridge0", "up")
    for i in range(1, count + 1):
        _run("ip", "netns", "add", name(i))
        _run("ip", "link", "add", "port%d" % i, "type", "veth", "peer", "name", "eth0", "netns", name(i))
        _run("ip", "link", "set", "port%d" % i, "master", "bridge0", "up")
        _run("ip", "-n", name(i), "link", "set", "lo", "up")
        _run("ip", "-n", name(i), "address", "add", "10.0.0.%d/24" % i, "dev", "eth0")
        _run("ip", "-n", name(i), "link", "set", "eth0", "up")


def enter(count):
    """Starts this script again with `count` hosts around it, or skips the test. Returns inside only."""
    missing = [tool for tool in ("ip", "tc", "nsenter", "unshare", "hostname", "mount") if not shutil.which(tool)]
    if missing:
        skip("needs " + ", ".join(missing))
    find_mpiexec()
    if not os.environ.get(INSIDE):
        private = ["unshare"] + (["--map-root-user"] if os.getuid() else [])
        private += ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        tried = subprocess.run(private + ["true"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if tried.returncode:
            skip("no right to make namespaces: " + tried.stderr.strip())
        os.environ[INSIDE] = "1"
        os.execvp("unshare", private + [sys.executable] + sys.argv)
    try:
        _bring_up(count)
    except subprocess.CalledProcessError as failure:
        skip("no hosts here: %s: %s" % (" ".join(failure.cmd), failure.stderr.strip()))


def shape(count, rate):
    """What each host can send, as tc has it (1gbit); None = as fast as it goes."""
    for i in range(1, count + 1):
        place = ["-n", name(i), "qdisc"]
        subprocess.run(["tc", *place, "del", "dev", "eth0", "root"], capture_output=True)
        if rate:
            _run("tc", *place, "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb", "latency", "100ms")


def can_shape():
    try:
        shape(1, "1gbit")
        shape(1, None)
        return True
    except subprocess.CalledProcessError:
        return False


def cut(number):
    _run("ip", "link", "set", "port%d" % number, "down")


def mend(number):
    _run("ip", "link", "set", "port%d" % number, "up")


def bytes_sent(number):
    """By a host, over the network, as the bridge's end of its link has it."""
    with open("/proc/net/dev") as file:
        for line in file:
            label, _, fields = line.partition(":")
            if label.strip() == "port%d" % number:
                return int(fields.split()[0])
    raise KeyError(number)


def mpiexec(count, *more):
    """The beginning of a command line that starts one rank on each host, from the first."""
    return ["nsenter", "--net=/run/netns/" + name(1), find_mpiexec(), "-launcher", "ssh", "-launcher-exec",
            os.path.join(HERE, "launch.sh"), "-hosts", ",".join(name(i) for i in range(1, count + 1)), "-iface", "eth0",
            "-disable-auto-cleanup", "-ppn", "1", "-n", str(count), *more]
