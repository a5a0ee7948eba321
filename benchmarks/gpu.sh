#!/usr/bin/env bash
# What runs take on a GPU, in at most eight minutes: prints a table for benchmarks/README.md.
#   benchmarks/gpu.sh [--device cuda] [--quick]
# Each part has a process and a time limit of its own, and a row, whatever happens to the others; gpu.py says
# what they are. With --quick all are small, on the CPU, to show that they run. PYTHON names the interpreter.
set -uo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
device=cuda options=()
while [ $# -gt 0 ]; do
    case $1 in
        --device) device=${2:?--device needs a name, such as cuda}; shift ;;
        --quick) device=cpu; options=(--quick) ;;
        --help | -h) sed -n '2,6s/^# //p' "$0"; exit 0 ;;
        *) echo "unknown option '$1': see $0 --help" >&2; exit 2 ;;
    esac
    shift
done
python=${PYTHON:-$folder/../.venv/bin/python}
command -v "$python" >/dev/null || python=python3
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0
export PYTHONPATH=$folder/..${PYTHONPATH:+:$PYTHONPATH}
words=$(mktemp)
trap 'rm -f "$words"' EXIT

part() {  # NAME SECONDS
    local begun=$SECONDS code=0
    timeout --kill-after=5 "$2" "$python" "$folder/gpu.py" "$1" --device "$device" "${options[@]}" 2>"$words" || code=$?
    if [ $code -ne 0 ]; then
        [ $code -eq 124 ] && echo "| $1 | stopped after $2 s |" \
            || echo "| $1 | failed with $code after $((SECONDS - begun)) s: $(tail -n 1 "$words" | tr '|' ' ' | cut -c -200) |"
        failed=1
    fi
}

failed=0
"$python" - "$device" <<'END'
import platform, sys
from importlib.metadata import version
import torch
name = torch.cuda.get_device_name() if sys.argv[1].startswith("cuda") and torch.cuda.is_available() else sys.argv[1]
print(f"{name}, Python {platform.python_version()}, torch {version('torch')}, numpy {version('numpy')}\n")
END
printf '| on %s | |\n| --- | --- |\n' "$device"
part A 90
part B 60
part methods 180
part features 90
part fedgp 50
exit $failed
