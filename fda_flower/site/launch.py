"""Hands a command to a site's launcher (`launcher.py`), or runs it where there is none.

This file is a program of its own, which starts in an instant: it imports nothing of the package.
"""

import json
import os
import socket
import sys


def hand_over(folder: str, name: str, arguments: list[str]) -> bool:
    """Return whether the launcher at a socket runs a command, with the surroundings of this process."""
    task = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            # The path of a socket may have 107 bytes; by the folder's descriptor it is short.
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            connection.connect(f"/proc/self/fd/{opened}/{name}")
            socket.send_fds(connection, [b"."], [0, 1, 2])
            connection.sendall(json.dumps(task).encode())
            connection.shutdown(socket.SHUT_WR)
            return bool(connection.recv(1))
    except OSError:
        return False


def main(folder: str, name: str, arguments: list[str]) -> None:
    """Have the launcher run the command, else run the one that is next on the path."""
    if not hand_over(folder, name, arguments):
        others = [path for path in os.get_exec_path() if path != folder]
        os.environ["PATH"] = os.pathsep.join(others)
        try:
            os.execvp(arguments[0], arguments)
        except FileNotFoundError:
            sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
