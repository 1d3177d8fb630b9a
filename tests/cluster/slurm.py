"""A real Slurm of two nodes on this machine: slurmctld and two slurmd of Debian's packages, on loopback, auth/none.

Everything it writes goes to one directory; it listens on 127.0.0.1 alone, and ends with the test.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

CONF = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=15
KillWait=5
MinJobAge=3600
SchedulerParameters=batch_sched_delay=0,sched_interval=2,requeue_setup_env_fail
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname=localhost Port={ports[1]} CPUs=2 RealMemory=500 State=UNKNOWN
NodeName=n2 NodeAddr=127.0.0.1 NodeHostname=localhost Port={ports[2]} CPUs=2 RealMemory=500 State=UNKNOWN
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP OverSubscribe=NO
"""


class Cluster:
    """Start with `up`; `call` runs a command of Slurm's. Daemons are this process's children."""

    def __init__(self, home: Path) -> None:
        self.home, self.daemons = home, {}
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
            for each in sockets:
                each.bind(("127.0.0.1", 0))
            ports = [each.getsockname()[1] for each in sockets]
        for folder in ("state", "spool-n1", "spool-n2"):
            (home / folder).mkdir(parents=True)
        self.conf = home / "slurm.conf"
        self.conf.write_text(CONF.format(home=home, ports=ports, user="root"))
        self.environment = os.environ | {"SLURM_CONF": str(self.conf)}

    def up(self) -> None:
        self._start("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])
        for node in ("n1", "n2"):
            self.start_node(node)
        until = time.monotonic() + 60
        while self.call("sinfo", "-h", "-N", "-o", "%T").split() != ["idle", "idle"]:
            if time.monotonic() > until:
                raise RuntimeError(f"Slurm did not come up: {self.words()}")
            time.sleep(0.5)

    def start_node(self, node: str) -> None:
        self._start(node, ["slurmd", "-D", "-N", node, "-f", str(self.conf)])

    def _start(self, name: str, command: list[str]) -> None:
        with open(self.home / f"{name}.out", "a") as log:
            self.daemons[name] = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def call(self, *command: str) -> str:
        found = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        return found.stdout

    def words(self) -> str:
        return "\n".join(file.read_text(errors="replace")[-1500:] for file in sorted(self.home.glob("*.log")))

    def lose(self, node: str) -> None:
        """The machine is gone: its daemon, and all processes that it started, at once."""
        for number in [*descendants(self.daemons[node].pid), *self._steps(node), self.daemons[node].pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self.daemons.pop(node).wait()

    def _steps(self, node: str) -> list[int]:
        """slurmstepd leaves its parent; its spool directory tells whose it is."""
        found = []
        for number in processes():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{number}/cmdline").read_bytes()
                environment = Path(f"/proc/{number}/environ").read_bytes()
                mine = f"SLURM_CONF={self.conf}".encode() in environment
                if mine and (f"SLURMD_NODENAME={node}".encode() in environment or f"[{node}]".encode() in command):
                    found += [number, *descendants(number)]
        return found

    def down(self) -> None:
        self.call("scancel", "--user=root")
        for node in ("n1", "n2"):
            if node in self.daemons:
                self.lose(node)
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(20)


def missing() -> str:
    """Why this cannot run here, if it cannot."""
    lost = [name for name in ("slurmctld", "slurmd", "sbatch", "squeue", "srun") if shutil.which(name) is None]
    if lost:
        return f"{', '.join(lost)}: not here. As root: apt-get install slurmctld slurmd slurm-client"
    return "" if os.getuid() == 0 else "Slurm's daemons are run as root here"


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for number in processes():
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(number)
    found, pending = [], [root]
    while pending:
        children = parents.get(pending.pop(), [])
        found += children
        pending += children
    return found
