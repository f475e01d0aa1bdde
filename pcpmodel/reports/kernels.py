"""The kernels that run notebooks, forked from one process that has the modules already.

A kernel that starts by itself imports for two seconds what the others have imported.  Here one
process imports it and forks a kernel for each run.  What kernels share is modules: none has run a
cell before the next is forked.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import builtins
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pcpmodel.files import open_regular

__all__ = ["Kernels", "last_words", "serve"]

_SERVE = "import sys; from pcpmodel.reports.kernels import serve; serve(int(sys.argv[1]))"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: What modules look at when they are imported.
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # as ipykernel sets it
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "PYTHONHASHSEED": "0",
    "TZ": "UTC",
    **dict.fromkeys(_THREADS, "1"),  # how a sum is split changes its last bits
}
#: As much is kept of what a kernel said before it died [bytes].
_MAX_LOG_BYTES = 1 << 20


class Kernels:
    """This interpreter, as it is installed and with nobody's profile, as often as runs need it.

    Parameters
    ----------
    place : path
        Folder for what the process says that kernels are forked from.
    modules : sequence of str
        What it imports before the first of them.
    """

    def __init__(self, place: Path, modules: Sequence[str] = ()) -> None:
        self.stopped = False
        self._managers: list[Any] = []
        self._one_at_a_time = threading.Lock()
        self._log = place / "kernels.log"
        ours, theirs = socket.socketpair()
        with theirs, self._log.open("wb") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVE, str(theirs.fileno()), *modules],
                env=os.environ | _ENVIRONMENT,
                cwd=place,  # nothing to import by mistake
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # an interrupt from the terminal is for its parent
            )
        with ours:
            self._channel = ours.makefile("rw", encoding="utf-8")

    def __enter__(self) -> Kernels:
        return self

    def __exit__(self, *error: object) -> None:
        """End the process; it ends what is left of its kernels."""
        with suppress(OSError):  # a request that could not be sent
            self._channel.close()
        self._server.wait()

    def stop(self) -> None:
        """Kill the kernels at work."""
        self.stopped = True
        for manager in self._managers:
            if manager.has_kernel:
                manager.provisioner.process.kill()

    def fork(self, request: Mapping[str, Any]) -> int:
        """Fork a kernel and return its process ID.

        Raises
        ------
        RuntimeError
            If the process that it is forked from has ended, with what that said.
        """
        with self._one_at_a_time:
            try:
                print(json.dumps(request), file=self._channel, flush=True)
                answer = self._channel.readline()
            except OSError:
                answer = ""
        if not answer:
            raise RuntimeError(f"no kernel could be started: {_end_of(self._log)}")
        return int(answer)

    def manager(self, scratch: str, environment: Mapping[str, str]) -> type:
        """Make the kernel manager of one run, whose files and socket lie in *scratch*."""
        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.manager import AsyncKernelManager
        from jupyter_client.provisioning import LocalProvisioner

        kernels = self
        env = {"IPYTHONDIR": scratch, **environment, **_ENVIRONMENT}

        class Forked(LocalProvisioner):
            async def launch_kernel(self, cmd: list[str], **options: Any) -> dict[str, Any]:
                where = os.path.abspath(options["cwd"])  # the server is elsewhere
                request = {"argv": cmd, "env": options["env"], "cwd": where, "log": _log(scratch)}
                self.process = _Process(kernels.fork(request))
                self.pid = self.pgid = self.process.pid
                self.cwd = where
                return self.connection_info

        class Kernel(AsyncKernelManager):
            kernel_spec = KernelSpec(
                argv=["-f", "{connection_file}"],
                env=env,
                display_name="Python 3",
                language="python",
                resource_dir=scratch,
            )

            def __init__(self, **options: Any) -> None:
                # Sockets are files of ours: no port for others to find or to race for.
                place = {"transport": "ipc", "ip": f"{scratch}/kernel"}
                super().__init__(connection_file=f"{scratch}/kernel.json", **place, **options)
                self.provisioner = Forked(kernel_spec=self.kernel_spec, parent=self)
                kernels._managers.append(self)

        return Kernel


def last_words(scratch: str) -> str:
    """What a kernel said before it died."""
    return _end_of(Path(_log(scratch)))


def _end_of(log: Path) -> str:
    if not log.exists():
        return ""
    with open_regular(log, limit=None) as said:
        said.seek(max(0, log.stat().st_size - _MAX_LOG_BYTES))
        return said.read().decode("utf-8", "replace").strip()


def _log(scratch: str) -> str:
    return f"{scratch}/kernel.log"


class _Process:
    """A kernel as jupyter_client asks for its process: as subprocess.Popen has it."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return 0 once it has ended; its parent keeps it as a zombie until then."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return 0
        return 0 if state in "ZX" else None

    def wait(self) -> int:
        return 0  # asked once it has ended

    def send_signal(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            self.send_signal(signal.SIGTERM)


def serve(channel: int) -> None:
    """Fork a kernel for each line of *channel*, until it is closed; end what is left then."""
    import_module("ipykernel.kernelapp")
    if sys.argv[2:]:
        _import_pandas()
    for module in sys.argv[2:]:
        import_module(module)
    # What is imported stays, half a million objects: no collection needs to look at it, nor to
    # write into pages that kernels share.
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kernels: list[int] = []
    with socket.socket(fileno=channel) as own, own.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            request = json.loads(line)
            pid = os.fork()
            if not pid:
                break
            with suppress(OSError):
                os.setpgid(pid, pid)
            kernels.append(pid)
            print(pid, file=lines, flush=True)
        else:
            _end(kernels)
            return
    _become_kernel(**request)


def _import_pandas() -> None:
    """Import pandas as a kernel does, before there is one.

    As it is imported it asks by this name whether it prints in a notebook, and settles for good
    how many columns of a table are printed.
    """
    builtins.get_ipython = lambda: SimpleNamespace(kernel=None)  # type: ignore[attr-defined]
    try:
        import_module("pandas")
    finally:
        del builtins.get_ipython  # type: ignore[attr-defined]


def _end(kernels: Sequence[int]) -> None:
    for pid in kernels:
        os.killpg(pid, signal.SIGKILL)  # a zombie, as none has been waited for, or at work
    for pid in kernels:
        os.waitpid(pid, 0)


def _become_kernel(argv: Sequence[str], env: Mapping[str, str], cwd: str, log: str) -> None:
    from ipykernel.kernelapp import launch_new_instance

    with suppress(OSError):
        os.setpgid(0, 0)  # so that a signal to its group finds it and what it started
    signal.signal(signal.SIGINT, signal.default_int_handler)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.close(said)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    # JPY_PARENT_PID was looked at when ipykernel was imported, and was another process's.
    argv = [*argv, f"--IPKernelApp.parent_handle={os.getppid()}", "--HistoryManager.enabled=False"]
    if "matplotlib" in sys.modules:  # which looked for a shell to draw in, and there was none yet
        argv.append("--matplotlib=inline")
    launch_new_instance(argv=argv)
