"""job.py: a job of several ranks as a test sees it: its processes, what it says, and when it ends."""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

SKIPPED = 77


def skip(reason):
    print("skipped: " + reason)
    sys.exit(SKIPPED)


def find_mpiexec():
    """MPICH's: it lets survivors live on, and its variables tell ranks apart."""
    for name in ("mpiexec.mpich", "mpiexec.hydra", "mpiexec"):
        path = shutil.which(name)
        if path and "HYDRA" in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    skip("no mpiexec of MPICH's family")


def children(pid):
    found = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread)) as file:
                found += [int(child) for child in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        pass  # it has ended meanwhile
    return found


def _variable(pid, name):
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            for setting in file.read().split(b"\0"):
                if setting.startswith(name.encode() + b"="):
                    return setting.split(b"=", 1)[1].decode()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return None


def _first_with_rank(pid, found):
    for child in children(pid):
        rank = _variable(child, "PMI_RANK")
        if rank is None:
            _first_with_rank(child, found)
        else:
            found[int(rank)] = child


class Identity:
    """A process, told apart from a later one of the same number."""

    def __init__(self, pid):
        self.pid, self.started = pid, self._field(pid, 22)

    @staticmethod
    def _field(pid, number):
        try:
            with open("/proc/%d/stat" % pid) as file:
                return file.read().rpartition(")")[2].split()[number - 3]
        except (FileNotFoundError, ProcessLookupError):
            return None

    def lives(self):
        return (self.started is not None and self._field(self.pid, 22) == self.started
                and self._field(self.pid, 3) not in ("Z", "X"))

    def send(self, number):
        """False if it has ended."""
        if not self.lives():
            return False
        os.kill(self.pid, number)
        return True


class Job:
    """A command that starts ranks; killed, with all that is left of it, after `limit` seconds."""

    def __init__(self, command, work, limit=60, env=None):
        self.begun = time.monotonic()
        self.limit = limit
        self.log = open(os.path.join(work, "log"), "w+")
        self.process = subprocess.Popen(["timeout", "-k", "2", str(limit)] + command, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, env=env)
        self.seen = {}

    def ranks(self, count, guarded, patience=20):
        """The ranks' processes, as soon as there are `count`: below a guard each, if they have one. Fewer if the
        job ended before."""
        while time.monotonic() < self.begun + patience and self.process.poll() is None:
            found = {}
            _first_with_rank(self.process.pid, found)
            for rank, top in found.items():
                below = children(top) if guarded else [top]
                if below and rank not in self.seen:
                    self.seen[rank] = Identity(below[0])
            if len(self.seen) == count:
                break
            time.sleep(0.002)
        return self.seen

    def age(self):
        return time.monotonic() - self.begun

    def wait(self):
        """The exit code, and in self.said what the job said; self.hung if it had to be ended."""
        self.code = self.process.wait()
        self.seconds = self.age()
        self.hung = self.seconds >= self.limit
        self.log.seek(0)
        self.said = self.log.read()
        self.log.close()
        return self.code

    def leftovers(self, patience=2):
        """Ranks that outlive the job: they are ended, and their numbers returned."""
        until = time.monotonic() + patience
        while time.monotonic() < until and any(rank.lives() for rank in self.seen.values()):
            time.sleep(0.05)
        left = [number for number, rank in self.seen.items() if rank.lives()]
        for number in left:
            self.seen[number].send(signal.SIGKILL)
        return left

    def names(self, survivor, missing):
        """Whether the survivor says that the other is missing."""
        return re.search(r"^tessera run: rank %d: .*rank %d (gave no sign|was lost|failed)" % (survivor, missing),
                         self.said, re.MULTILINE) is not None

    def was_killed(self, rank):
        """Whether its guard says so."""
        return "tessera: rank %d was ended by signal" % rank in self.said
