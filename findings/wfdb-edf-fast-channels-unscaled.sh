#!/usr/bin/env bash
# Guess: a channel of an EDF file has the same values and the same unit when it is read, whatever else the file holds.
# What happens: read_edf scales a channel to its unit only where all channels have one rate. Beside a slower one, such
# as an oxygen saturation, the ECG is in the recorder's own steps, still named mV: 0.8 mV is 327, without a word.
# Each recorder has a step of its own, so that two hospitals' ECGs differ by a factor.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile \
    wfdb==4.3.1 pyedflib==0.1.42 numpy==2.4.6 pandas==2.3.3
cd "$place"

expected=$(cat <<'END'
wfdb 4.3.1
12 bits, alone: 0.8 mV at 250 Hz
12 bits, beside a saturation: 327.0 mV at 50 Hz (saturation 97.0 %)
16 bits, alone: 0.8 mV at 250 Hz
16 bits, beside a saturation: 5242.0 mV at 50 Hz (saturation 97.0 %)
pyedflib, beside a saturation: 0.8 mV
END
)
seen=$(bin/python -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
import pyedflib
from wfdb.io.convert.edf import read_edf


def write(bits, *channels):
    """Ten seconds; a channel has a name, a unit, a rate, its range, and one value."""
    writer = pyedflib.EdfWriter("stay.edf", len(channels), file_type=pyedflib.FILETYPE_EDF)
    for number, (name, unit, rate, low, high, _) in enumerate(channels):
        header = {"label": name, "dimension": unit, "sample_frequency": rate, "transducer": "", "prefilter": ""}
        steps = {"digital_min": -(2 ** (bits - 1)), "digital_max": 2 ** (bits - 1) - 1}
        writer.setSignalHeader(number, header | steps | {"physical_min": low, "physical_max": high})
    writer.writeSamples([np.full(10 * rate, value, float) for _, _, rate, _, _, value in channels])
    writer.close()


ecg, saturation = ("ECG", "mV", 250, -5, 5, 0.8), ("SpO2", "%", 50, 0, 100, 97)
print("wfdb", version("wfdb"))
for bits in (12, 16):
    write(bits, ecg)
    record = read_edf("stay.edf")
    print(f"{bits} bits, alone: {record.p_signal[:, 0].mean():.1f} {record.units[0]} at {record.fs} Hz")
    write(bits, ecg, saturation)
    record = read_edf("stay.edf")
    (first, second), (unit, percent) = record.p_signal.mean(axis=0), record.units
    others = f"at {record.fs} Hz (saturation {second:.1f} {percent})"
    print(f"{bits} bits, beside a saturation: {first:.1f} {unit} {others}")
with pyedflib.EdfReader("stay.edf") as reader:
    print(f"pyedflib, beside a saturation: {reader.readSignal(0).mean():.1f} {reader.getPhysicalDimension(0)}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
