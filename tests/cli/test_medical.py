"""A folder of DICOM files, NIfTI volumes, or listed images leads to a prediction by the four commands."""

import csv
import json
import re
import shutil
import sys

import numpy as np
import pytest
from medical import dicom, nifti, write_scans
from PIL import Image

from fda_flower import ConfigError, load, run
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.own_data.check import check, find_dataset
from fda_flower.prediction.features import keys_of

pytest.importorskip("pydicom")
pytest.importorskip("nibabel")

NUMBER = "ZX-4711"
"""Begins a patient's number, which stays in its file."""


def ct(values):
    """Hounsfield units of -1024 and more, two files of a patient."""
    tags = {"Modality": "CT", "RescaleSlope": 1, "RescaleIntercept": -1024}
    return dicom(values, PatientID=f"{NUMBER}-{values[0, 0] % 5} ", **tags)


def two_frames(values):
    return dicom(np.stack([values, values[::-1]]), NumberOfFrames=2, Modality="US")


def volume(values):
    return nifti(np.stack([values.T[:, ::-1]] * 3, axis=2).astype(np.int16))


FORMATS = {
    "dicom": (ct, ".dcm", ["window=-24,2000", "group=PatientID"]),
    "without a suffix": (ct, "", ["window=-24,2000"]),
    "each frame": (two_frames, ".dcm", ["window=1000,2000", "frame=all"]),
    "nifti": (volume, ".nii.gz", ["window=1000,2000", "slice=axial:middle"]),
}


@pytest.mark.parametrize("name", FORMATS)
def test_scans_lead_to_a_prediction(fda, tmp_path, name):
    write, suffix, options = FORMATS[name]
    scans, given = (
        write_scans(tmp_path / "scans", write, suffix),
        [f"--dataset-option={each}" for each in options],
    )
    code, out, err = fda("data", "check", scans, *given, "--json")
    assert code == 0, out + err
    assert json.loads(out)["dataset"] == "images"
    shutil.copytree(scans / "bonn", tmp_path / "new")
    settings = ["--method", "target-only", "--model", "logistic", "--rounds", "8"]
    code, out, err = fda(
        "run", "--dataset", "images", "--data-dir", scans, *given, *settings, "--output", "run"
    )
    assert code == 0, out + err
    code, out, err = fda("predict", "run", "--images", "new")
    assert code == 0, out + err
    with open("predictions.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == (40 if name == "each frame" else 20)
    assert ("frame" in rows[0]) == (name == "each frame")
    if name != "each frame":
        assert np.mean([row["prediction"] == row["file"].split("/")[0] for row in rows]) == 1
    code, out, err = fda("evaluate", "run", "--images", "new")
    assert code == 0, out + err
    assert ("patients" in out) == (name in ("dicom", "each frame"))
    written = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert NUMBER.encode() not in written


def spec_of(folder, *options):
    return DataSpec(
        "images", data_dir=str(folder), dataset_options=tuple(each.split("=") for each in options)
    )


def test_a_window_is_asked_for_with_the_range_of_all_files(tmp_path):
    scans = write_scans(tmp_path / "scans", ct, ".dcm")
    (said,) = check(spec_of(scans)).problems.by_kind()
    assert re.search(r"values from -10\d\d to 97\d, which need a window.* shows all of these", said)
    with pytest.raises(ConfigError, match="which need a window"):
        _ = load_federation(spec_of(scans)).domains["bonn"].train.x[:]


def test_scans_that_a_window_does_not_show_as_others_are_named(tmp_path):
    scans = write_scans(tmp_path / "scans", ct, ".dcm")

    def said(window):
        notes = check(spec_of(scans, f"window={window}", "group=PatientID")).notes
        return " ".join(note for note in notes if "window" in note or "scans" in note)

    assert said("-24,2000") == ""
    assert said("9000,10").count("no value lies in the window") == 2
    for path in (scans / "mainz").rglob("*.dcm"):
        path.write_bytes(dicom(np.full((8, 8), 900), Modality="OT", PatientID="9"))
    assert re.search(
        r"of other greys by domain .about \d+ at bonn, \d+ at mainz.: in other units", said("-24,2000")
    )
    Image.new("L", (8, 8)).save(scans / "bonn" / "ill" / "photo.png")
    assert "40 DICOM or NIfTI images, which the window shows, are among 1 others" in said("-24,2000")


def test_the_model_keeps_the_window_and_its_frames(tmp_path):
    scans = write_scans(tmp_path / "scans", ct, ".dcm")
    given = {"window": "-24,2000", "frame": 1}
    run(
        dataset="images",
        data_dir=scans,
        dataset_options=given,
        method="target-only",
        rounds=1,
        output=tmp_path / "run",
    )
    model = load(tmp_path / "run")
    look = model.preparation.look
    assert (look.window.center, look.window.width, look.frame) == (-24, 2000, 1)
    assert model.about.dataset_options["window"] == "-24,2000"


def test_features_are_known_by_look_and_decoder(tmp_path, monkeypatch):
    scans = write_scans(tmp_path / "scans", ct, ".dcm")
    digests = []
    for window in ("-24,2000", "-24,2000", "0,2000"):
        train = load_federation(spec_of(scans, f"window={window}")).domains["bonn"].train
        digests.append(keys_of(train.x))
    monkeypatch.setattr("fda_flower.datasets.dicom.version", lambda package: "0")
    assert digests[0] == digests[1] != digests[2]
    assert {*digests[2]}.isdisjoint(keys_of(train.x))


def test_frames_of_a_file_and_files_of_a_patient_stay_together(tmp_path, caplog):
    frames = load_federation(
        spec_of(write_scans(tmp_path / "a", two_frames, ".dcm"), "frame=all", "window=1000,2000")
    )
    for domain in frames.domains.values():
        trained, tested = ({*part.x.paths} for part in (domain.train, domain.test))
        assert trained.isdisjoint(tested)
        assert (len(domain.train) + len(domain.test), domain.test.units) == (40, 4)
    scans = write_scans(tmp_path / "b", ct, ".dcm")
    caplog.clear()
    domain = load_federation(spec_of(scans, "group=PatientID", "window=0,2000")).domains["bonn"]
    assert {*domain.train.groups.tolist()}.isdisjoint(domain.test.groups.tolist())
    assert not any("whose patient has several" in each for each in caplog.messages)
    load_federation(spec_of(scans, "window=0,2000"))
    (said,) = (each for each in caplog.messages if "whose patient has several" in each)
    assert "group=PatientID" in said
    assert any("'the one of bonn/ill/" in each for each in caplog.messages)
    assert NUMBER not in caplog.text


@pytest.mark.parametrize("number", [None, "", ["a", "b"]])
def test_a_file_without_exactly_one_patient_is_named_alone(tmp_path, number):
    scans = write_scans(tmp_path / "scans", ct, ".dcm")
    (scans / "bonn/ill/3.dcm").write_bytes(dicom(np.ones((16, 16)), PatientID=number))
    with pytest.raises(ConfigError, match=r"one PatientID: 1 of 20, such as 'ill/3\.dcm'") as refusal:
        load_federation(spec_of(scans, "group=PatientID", "window=0,2000"))
    assert NUMBER not in str(refusal.value)


def test_what_lost_values_is_in_the_report(tmp_path):
    scans = write_scans(tmp_path / "scans", ct, ".dcm")
    for i in range(3):
        values = np.random.default_rng(i).integers(0, 500, (16, 16))
        (scans / f"bonn/ill/{i}.dcm").write_bytes(dicom(values, LossyImageCompression="01"))
    notes = check(spec_of(scans, "window=0,2000")).notes
    assert any(
        "bonn: DICOM files that were compressed with loss: 3 by an earlier one" in note for note in notes
    )


@pytest.mark.parametrize(
    ("write", "suffix", "package"), [(ct, ".dcm", "pydicom"), (volume, ".nii", "nibabel")]
)
def test_without_the_extra_one_line_says_what_to_install(fda, tmp_path, monkeypatch, write, suffix, package):
    scans, extra = (
        write_scans(tmp_path / "scans", write, suffix),
        {"pydicom": "dicom", "nibabel": "nifti"}[package],
    )
    monkeypatch.setattr("fda_flower.names.packages.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, package, None)
    for call in (["data", "check", scans], ["run", "--dataset", "images", "--data-dir", scans]):
        code, out, err = fda(*call)
        assert code
        assert f"pip install 'fda-flower[{extra}]'" in out + err
        assert len((out + err).strip().splitlines()) == 1


def test_files_that_are_no_images_are_no_dicom_without_its_preamble(tmp_path):
    scans = write_scans(tmp_path / "scans", ct, "")
    (scans / "DICOMDIR").write_bytes((scans / "bonn/ill/0").read_bytes())
    (scans / "bonn/notes").write_text("no image")
    assert find_dataset(scans) == "images"
    report = check(spec_of(scans, "window=0,2000"))
    assert not report.problems
    assert any(
        "no images are left out: 1 without a suffix, such as 'bonn/notes'" in note for note in report.notes
    )
