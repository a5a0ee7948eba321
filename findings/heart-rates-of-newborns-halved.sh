#!/usr/bin/env bash
# Guess: packages for ECGs find the heart rate of a clean recording for any rate that patients have, such as 220 beats a
# minute of a newborn with a tachycardia or 36 of an athlete asleep, or say that they do not.
# What happens: neurokit2 takes no beat within 0.3 seconds of another: of the newborn it sees every second, and 110 is a
# normal rate. biosppy finds the beats, and drops each rate below 40 or above 200: of a minute at 45 and a minute at 36
# the mean is 45, and where all are out of its range there is none. Neither says a word.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile \
    neurokit2==0.2.13 biosppy==2.2.4 peakutils==1.3.5 numpy==2.3.5 pandas==2.3.3 scipy==1.16.3
cd "$place"

expected=$(cat <<'END'
neurokit2 0.2.13, biosppy 2.2.4
60 a minute: neurokit2 60, biosppy 60, by its beats 60
120 a minute: neurokit2 120, biosppy 120, by its beats 120
190 a minute: neurokit2 190, biosppy 190, by its beats 190
220 a minute: neurokit2 110, biosppy none, by its beats 220
240 a minute: neurokit2 120, biosppy none, by its beats 240
a minute at 45, one at 36: biosppy 45, by its beats 41
END
)
seen=$(bin/python -W ignore - <<'PY'
import math
import os
from importlib.metadata import version

os.environ["MPLBACKEND"] = "agg"
import neurokit2
import numpy as np
from biosppy.signals.ecg import ecg as biosppy_ecg

RATE = 500
# The waves of a beat: height, seconds from its R wave at 60 beats a minute, and width.
WAVES = ((0.1, -0.16, 0.025), (1.0, 0, 0.012), (-0.15, 0.03, 0.01), (0.25, 0.3, 0.05))


def recording(*rates):
    """A minute for each rate; P and T come closer to R as the heart beats faster."""
    times = np.arange(60 * len(rates) * RATE) / RATE
    signal, beat = np.zeros_like(times), 0.0
    while beat < times[-1]:
        pause = 60 / rates[int(beat // 60)]
        beat += pause
        for height, place, width in WAVES:
            signal += height * np.exp(-(((times - beat - place * math.sqrt(pause)) / width) ** 2))
    return signal


print(f"neurokit2 {version('neurokit2')}, biosppy {version('biosppy')}")
for rate in (60, 120, 190, 220, 240):
    signal = recording(rate)
    peaks = neurokit2.ecg_peaks(neurokit2.ecg_clean(signal, RATE), RATE)[1]["ECG_R_Peaks"]
    first = 60 * RATE / np.diff(peaks).mean()
    found = biosppy_ecg(signal, RATE, show=False)
    second = f"{found['heart_rate'].mean():.0f}" if len(found["heart_rate"]) else "none"
    beats = 60 * RATE / np.diff(found["rpeaks"]).mean()
    print(f"{rate} a minute: neurokit2 {first:.0f}, biosppy {second}, by its beats {beats:.0f}")
found = biosppy_ecg(recording(45, 36), RATE, show=False)
beats = 60 * RATE / np.diff(found["rpeaks"]).mean()
print(f"a minute at 45, one at 36: biosppy {found['heart_rate'].mean():.0f}, by its beats {beats:.0f}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
