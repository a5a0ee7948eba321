#!/usr/bin/env bash
# Guess: a signal written to an EDF file comes back with its length, and a value beyond the channel's physical
# range is refused.
# What happens: EdfWriter.writeSamples cuts values off at the range without a word, and fills the last second with
# a value that is nearly 0: 300 samples are 512, and a mean over them is another one. (highlevel.write_edf does
# refuse a range that is too small.)
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pyedflib==0.1.42 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
pyedflib 0.1.42
written: 300 samples from -300.0 to 300.0
read: 512 samples from -200.0 to 200.0 | last 0.003
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import pyedflib

head = pyedflib.highlevel.make_signal_header("EEG", sample_frequency=256, physical_min=-200, physical_max=200)
signal = np.linspace(-300.0, 300.0, 300)
with pyedflib.EdfWriter("night.edf", 1) as writer:
    writer.setSignalHeaders([head])
    writer.writeSamples([signal])
found = pyedflib.highlevel.read_edf("night.edf")[0][0]
print("pyedflib", pyedflib.__version__)
print("written:", len(signal), "samples from", signal.min(), "to", signal.max())
print("read:", len(found), "samples from", found.min(), "to", found.max(), "| last", round(float(found[-1]), 3))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
