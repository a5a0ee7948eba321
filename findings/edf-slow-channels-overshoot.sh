#!/usr/bin/env bash
# Guess: where channels of one EDF file have different rates, the slow ones are filled in with values within their
# own.
# What happens: MNE brings all to the fastest rate by a filter that rings at steps. An oxygen saturation that goes
# from 80 to 100% is above 100 in nearly a quarter of all samples, and up to 103.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile mne==1.13.2 pyedflib==0.1.42 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
mne 1.13.2
written: 40 samples from 80.0 to 100.0
read: 2000 samples from 77.2 to 102.8
above 100.1: 23%
END
)
seen=$(bin/python - <<'PY'
import mne
import numpy as np
import pyedflib

mne.set_log_level("ERROR")
heads = [
    pyedflib.highlevel.make_signal_header(name, dimension, rate, physical_min=-200, physical_max=200)
    for name, dimension, rate in (("EEG", "uV", 200), ("SpO2", "%", 4))
]
saturation = np.repeat([80.0, 100.0], 20)
pyedflib.highlevel.write_edf("night.edf", [np.zeros(2000), saturation], heads)
filled = mne.io.read_raw_edf("night.edf", preload=True).get_data("SpO2")[0]
print("mne", mne.__version__)
print("written:", len(saturation), "samples from", saturation.min(), "to", saturation.max())
print("read:", len(filled), "samples from", filled.min().round(1), "to", filled.max().round(1))
print("above 100.1:", f"{np.mean(filled > 100.1):.0%}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
