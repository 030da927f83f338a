"""A Slurm cluster of one node in a private folder: munged, slurmctld and slurmd on free ports,
stopped whatever happens. `with Cluster(folder) as cluster:`; commands run with
`cluster.environment`. Raises Unavailable with the reason where that cannot be."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")

CONFIG = """\
ClusterName=orrery
SlurmctldHost={host}
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=100000,bf_interval=1
ReturnToService=2
KillWait=2
MpiDefault=none
SwitchType=switch/none
# More cores than the machine has: tests need tasks beside each other, not speed.
SlurmdParameters=config_overrides
NodeName={host} CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=60 State=UP
"""


class Unavailable(Exception):
    """Why there can be no cluster here."""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Cluster:
    def __init__(self, folder, cpus=4):
        self.folder = pathlib.Path(folder)
        self.cpus = cpus
        self.daemons = []
        self.environment = dict(os.environ, SLURM_CONF=str(self.folder / "slurm.conf"))
        for name in [name for name in self.environment if name.startswith(("SBATCH_", "SLURM_JOB"))]:
            del self.environment[name]

    def __enter__(self):
        missing = [name for name in PROGRAMS if not self.program(name)]
        if missing:
            raise Unavailable(f"not installed: {', '.join(missing)}")
        if os.geteuid() != 0:
            raise Unavailable("slurmd starts jobs as root only")
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def program(self, name):
        return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")

    def start(self):
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        host = socket.gethostname().split(".")[0]
        controller, daemon = free_ports(2)
        (self.folder / "slurm.conf").write_text(CONFIG.format(
            host=host, controller=controller, daemon=daemon, folder=self.folder, cpus=self.cpus))
        self.daemon("munged", "--foreground", "--force", f"--key-file={key}",
                    f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                    f"--seed-file={self.folder}/munge.seed", f"--log-file={self.folder}/munged.log")
        self.wait("munged", lambda: (self.folder / "munge.socket").exists())
        self.daemon("slurmctld", "-D", "-i")
        self.daemon("slurmd", "-D", "-N", host)
        self.wait("the node", lambda: self.command("sinfo", "-h", "-o", "%t").strip() == "idle")

    def daemon(self, name, *arguments):
        log = open(self.folder / f"{name}.out", "wb")
        self.daemons.append((name, subprocess.Popen(
            [self.program(name), *arguments], stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, env=self.environment, start_new_session=True)))

    def wait(self, what, ready, seconds=40):
        end = time.monotonic() + seconds
        while not ready():
            for name, process in self.daemons:
                if process.poll() is not None:
                    raise Unavailable(f"{name} ended with status {process.returncode}: "
                                      f"{self.last_words(name)}")
            if time.monotonic() > end:
                raise Unavailable(f"{what} did not come up in {seconds} s: "
                                  f"{self.last_words('slurmd')}")
            time.sleep(0.1)

    def last_words(self, name):
        lines = []
        for log in (self.folder / f"{name}.out", self.folder / f"{name}.log"):
            if log.exists():
                lines += log.read_text(errors="replace").splitlines()[-3:]
        return " | ".join(lines)

    def command(self, name, *arguments):
        """What a command of Slurm prints; "" where it fails."""
        done = subprocess.run([self.program(name), *arguments], env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        return done.stdout if done.returncode == 0 else ""

    def stop(self):
        """Cancels all jobs, then ends the daemons, each with its children."""
        if len(self.daemons) == 3:
            self.command("scancel", "--user=root", "--signal=KILL", "--full")
            self.command("scancel", "--user=root")
            end = time.monotonic() + 10
            while self.command("squeue", "-h") and time.monotonic() < end:
                time.sleep(0.2)
        for _, process in reversed(self.daemons):
            for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
                if process.poll() is None:
                    os.killpg(process.pid, number)
                    try:
                        process.wait(patience)
                    except subprocess.TimeoutExpired:
                        pass
        self.daemons = []
