"""Hand a command to a site's launcher (`launcher.py`), or run it if there is none.

This file is a program of its own that starts instantly: it imports nothing of the package.
"""

import json
import os
import socket
import sys


def hand_over(folder: str, name: str, arguments: list[str]) -> bool:
    """Ask the launcher at a socket to run a command in this process's environment; return whether it does."""
    task = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            # A socket's path is limited to 107 bytes; the path by the folder's descriptor is short.
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            connection.connect(f"/proc/self/fd/{opened}/{name}")
            socket.send_fds(connection, [b"."], [0, 1, 2])
            connection.sendall(json.dumps(task).encode())
            connection.shutdown(socket.SHUT_WR)
            return bool(connection.recv(1))
    except OSError:
        return False


def main(folder: str, name: str, arguments: list[str]) -> None:
    """Let the launcher run the command, or run the next one on the path."""
    if not hand_over(folder, name, arguments):
        others = [path for path in os.get_exec_path() if path != folder]
        os.environ["PATH"] = os.pathsep.join(others)
        try:
            os.execvp(arguments[0], arguments)
        except FileNotFoundError:
            sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
