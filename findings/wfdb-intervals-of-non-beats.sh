#!/usr/bin/env bash
# Guess: ann2rr, which turns the annotations of an ECG into RR intervals, takes beats, as the WFDB tool of this name
# does.
# What happens: each annotation counts: a change of rhythm or a mark of noise between two beats cuts their interval
# in two, and the first interval is from the start of the record. A heart with 60 beats a minute has 109 here.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile wfdb==4.3.1 numpy==2.4.6 pandas==3.1.1
cd "$place"

expected=$(cat <<'END'
wfdb 4.3.1
beats [1.0, 1.0, 1.0]: 60 a minute
ann2rr [0.3, 1.0, 0.5, 0.5, 0.5, 0.5]: 109 a minute
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import wfdb
from wfdb.processing import ann2rr

# Beats (N) each second, a rhythm (+), and a change of the signal's quality (~).
samples, symbols = np.array([30, 130, 180, 230, 280, 330]), ["N", "N", "+", "N", "~", "N"]
wfdb.wrann("ecg", "atr", samples, symbols, fs=100, aux_note=["", "", "(N", "", "", ""])
wfdb.wrsamp("ecg", 100, ["mV"], ["I"], np.sin(np.arange(500) / 9)[:, None], fmt=["16"])
beats = np.diff([at for at, symbol in zip(samples, symbols) if symbol == "N"]) / 100
print("wfdb", wfdb.__version__)
for name, intervals in (("beats", beats), ("ann2rr", ann2rr("ecg", "atr", format="s", as_array=True))):
    print(name, f"{intervals.tolist()}: {60 / intervals.mean():.0f} a minute")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
