"""A SuperNode on this machine: Flower's own, which looks for messages sooner than after 3 seconds.

``python -m fda_flower.deployment.supernode`` takes the arguments of ``flower-supernode``.
"""

import sys

from fda_flower.flower_internals import run_supernode

LOOK_SECONDS = 0.25

if __name__ == "__main__":
    sys.argv[0] = "flower-supernode"
    run_supernode(LOOK_SECONDS)
