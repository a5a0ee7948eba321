#!/usr/bin/env bash
# Guess: samples that a DICOM ECG marks as missing, by its WaveformPaddingValue, are NaN when the leads are read in
# millivolts, or marked.
# What happens: waveform_array scales the marker like a voltage: where an electrode was off for a second of ten, a lead
# of 1 mV has samples of -164 mV and a mean of -15.5. The marker is not looked at, and nothing is said. Leads in uV and
# in mV also stand side by side as they are, a thousandfold apart.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pydicom==3.0.2 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
pydicom 3.0.2
lead I: mean 1.00, lowest 1.00 mV
lead II, 1 of 10 seconds missing: mean -15.48, lowest -163.84 mV, 0 of 5000 NaN
without the marker: mean 1.00
lead III: mean 1000.00 uV
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import pydicom
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, TwelveLeadECGWaveformStorage, generate_uid


def coded(value):
    code = Dataset()
    code.CodeValue, code.CodingSchemeDesignator, code.CodeMeaning = value, "UCUM", value
    return [code]


def lead(unit, sensitivity):
    channel = Dataset()
    channel.ChannelSensitivity, channel.ChannelSensitivityCorrectionFactor, channel.ChannelBaseline = sensitivity, 1, 0
    channel.ChannelSensitivityUnitsSequence = coded(unit)
    channel.ChannelSampleSkew, channel.WaveformBitsStored = 0, 16
    return channel


stored = np.full((5000, 3), 200, np.int16)
stored[1000:1500, 1] = -32768
group = Dataset()
group.MultiplexGroupTimeOffset, group.WaveformOriginality = 0, "ORIGINAL"
group.NumberOfWaveformChannels, group.NumberOfWaveformSamples, group.SamplingFrequency = 3, 5000, 500
group.WaveformBitsAllocated, group.WaveformSampleInterpretation = 16, "SS"
group.ChannelDefinitionSequence = [lead("mV", 0.005), lead("mV", 0.005), lead("uV", 5)]
group.add_new("WaveformPaddingValue", "OW", np.int16(-32768).tobytes())
group.add_new("WaveformData", "OW", stored.tobytes())
ecg = Dataset()
ecg.file_meta = FileMetaDataset()
ecg.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
ecg.SOPClassUID = ecg.file_meta.MediaStorageSOPClassUID = TwelveLeadECGWaveformStorage
ecg.SOPInstanceUID = ecg.file_meta.MediaStorageSOPInstanceUID = generate_uid()
ecg.WaveformSequence = [group]
ecg.save_as("ecg.dcm", enforce_file_format=True)

first, second, third = pydicom.dcmread("ecg.dcm").waveform_array(0).T
print("pydicom", pydicom.__version__)
print(f"lead I: mean {first.mean():.2f}, lowest {first.min():.2f} mV")
missing = f"{np.isnan(second).sum()} of {len(second)} NaN"
print(f"lead II, 1 of 10 seconds missing: mean {second.mean():.2f}, lowest {second.min():.2f} mV, {missing}")
print(f"without the marker: mean {second[stored[:, 1] != -32768].mean():.2f}")
print(f"lead III: mean {third.mean():.2f} uV")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
