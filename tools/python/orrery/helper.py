"""The process that simulates for this one: SimGrid's engine is one per process and simulations
fork, which a notebook with its threads must not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

from . import _orrery

_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from orrery import _orrery; " \
        "_orrery.serve(int(sys.argv[2]))"

_lock = threading.Lock()
_helper: tuple[int, subprocess.Popen[bytes], socket.socket] | None = None


def session() -> int:
    """A socket to a new session. The helper is started when it is first needed (and again in a
    fork of this process); it ends with this process."""
    global _helper
    with _lock:
        if _helper is None or _helper[0] != os.getpid() or _helper[1].poll() is not None:
            ours, theirs = socket.socketpair()
            folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
            process = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", _CODE, folder, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "ORRERY_PROGRAM": os.path.join(folder, "orrery", "__main__.py")})
            theirs.close()
            _helper = (os.getpid(), process, ours)
        ours, theirs = socket.socketpair()
        socket.send_fds(_helper[2], [b"f"], [theirs.fileno()])
        theirs.close()
        return ours.detach()
