#!/usr/bin/env bash
# Guess: the patient's number and the results of a laboratory message (ORU^R01) are read by their segments' names,
# as in msg.pid.pid_3.value, or an error says that they lie elsewhere.
# What happens: the number is an empty text, and there are no results: the parser puts segments into groups, and a
# segment that is not at the top is made there, empty, where it is read. With find_groups=False the same lines read
# them. Values keep HL7's escapes: \T\ is not &.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile hl7apy==1.3.5
cd "$place"

expected=$(cat <<'END'
hl7apy 1.3.5
parsed: patient '' results 0
in its groups: patient '4711' results 2
find_groups=False: patient '4711' results 2
a comment: 'salt \\T\\ water'
END
)
seen=$(bin/python - <<'PY'
from importlib.metadata import version

from hl7apy.parser import parse_message

MESSAGE = "\r".join((
    "MSH|^~\\&|LAB|H|WARD|H|20260101||ORU^R01^ORU_R01|1|P|2.5",
    "PID|1||4711",
    "OBR|1|||GLU",
    "OBX|1|NM|GLU||5.5|mmol/L|||||F",
    "OBX|2|ST|NOTE||salt \\T\\ water||||||F",
))


def show(name, patient, results):
    print(f"{name}: patient {patient.pid.pid_3.value!r} results {len(results.obx)}")


print("hl7apy", version("hl7apy"))
message = parse_message(MESSAGE)
show("parsed", message, message)
message = parse_message(MESSAGE)
group = message.oru_r01_patient_result
lines = group.oru_r01_order_observation.oru_r01_observation
print(f"in its groups: patient {group.oru_r01_patient.pid.pid_3.value!r} results {len(lines)}")
message = parse_message(MESSAGE, find_groups=False)
show("find_groups=False", message, message)
print(f"a comment: {message.obx[1].obx_5.value!r}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
