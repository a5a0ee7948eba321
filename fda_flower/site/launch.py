"""Hands a command to a site's launcher (`launcher.py`), or runs it where there is none.

This file is a program of its own, which starts in an instant: it imports nothing of the package.
"""

import json
import os
import socket
import sys


def hand_over(launcher: str, arguments: list[str]) -> bool:
    """Return whether a launcher runs its command with these arguments, and this process's surroundings."""
    task = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            # The path of a socket may have 107 bytes; by the folder's descriptor it is short.
            folder = os.open(launcher, os.O_RDONLY | os.O_DIRECTORY)
            connection.connect(f"/proc/self/fd/{folder}/socket")
            socket.send_fds(connection, [b"."], [0, 1, 2])
            connection.sendall(json.dumps(task).encode())
            connection.shutdown(socket.SHUT_WR)
            return bool(connection.recv(1))
    except OSError:
        return False


def main(launcher: str, command: str, arguments: list[str]) -> None:
    """Have the launcher run the command, else run the one that is next on the path."""
    if not hand_over(launcher, arguments):
        others = [path for path in os.get_exec_path() if path != launcher]
        os.environ["PATH"] = os.pathsep.join(others)
        os.execvp(command, [command, *arguments])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
