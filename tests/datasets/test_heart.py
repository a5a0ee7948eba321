"""UCI Heart Disease: made files, whose features are computed by hand, and the real ones where they are."""

import os
from pathlib import Path

import pytest
import torch
from naming import names

from fda_flower.datasets.heart import FILES, load
from fda_flower.errors import ConfigError

DATA_DIR = os.environ.get("FDA_DATA_DIR")
real = pytest.mark.skipif(
    DATA_DIR is None or not (Path(DATA_DIR) / "heart_disease").is_dir(),
    reason=f"heart_disease is not in FDA_DATA_DIR ({DATA_DIR})",
)

# age, sex, cp, trestbps, chol, fbs, restecg, thalach, exang, oldpeak, slope, ca, thal, num
ROWS = """\
40,1,1,120,200,0,0,150,0,1.0,?,?,?,0
50,0,2,130,200,0,1,160,1,.5,1,?,3,2
60,1,3.0,140,200,1,2.0,170,0,2,2,0.0,7,0
70,0,4,150,200,0,0,180,1,-.5,?,?,?,4
?,0,4,150,200,0,0,180,1,0,?,?,?,1
55,0,4,150,200,0,0,180,1,0,2,0,3,?
"""


@pytest.fixture
def folder(tmp_path):
    """The four files, all with the same rows."""
    folder = tmp_path / "heart_disease"
    folder.mkdir()
    for name in FILES.values():
        (folder / f"processed.{name}.data").write_text(ROWS)
    return folder


def test_features_are_those_computed_by_hand(folder):
    split = load(folder.parent, 0)["cleveland"]
    raw = torch.tensor(
        [
            [40, 1, 120, 200, 0, 150, 0, 1.0, 0, 0, 0, 0, 0],
            [50, 0, 130, 200, 0, 160, 1, 0.5, 1, 0, 0, 1, 0],
            [60, 1, 140, 200, 1, 170, 0, 2.0, 0, 1, 0, 0, 1],
            [70, 0, 150, 200, 0, 180, 1, -0.5, 0, 0, 1, 0, 0],
        ]
    )
    labels = torch.tensor([0, 1, 0, 1])
    # 66 % of 4 is 2: one ill patient and a healthy one.
    assert (len(split.train), len(split.test), split.classes) == (2, 2, 2)
    matches = []
    for first in range(4):
        for second in range(4):
            train = raw[[first, second]]
            scale = (train[0] - train[1]).abs() / 2
            scale[scale == 0] = 1
            x = (raw - train.mean(dim=0)) / scale
            rest = [i for i in range(4) if i not in (first, second)]
            if (
                split.train.x.shape == (2, 13)
                and torch.allclose(split.train.x, x[[first, second]], atol=1e-5)
                and torch.allclose(split.test.x.sort(dim=0)[0], x[rest].sort(dim=0)[0], atol=1e-5)
            ):
                matches.append((first, second))
    ((first, second),) = matches
    assert split.train.y.tolist() == [int(labels[first]), int(labels[second])]
    assert sorted(split.train.y.tolist()) == sorted(split.test.y.tolist()) == [0, 1]
    assert split.train.x[:, 3].tolist() == [0, 0], "a constant feature is only centred"


def test_without_a_folder_the_error_says_what_to_get():
    with pytest.raises(ConfigError, match=r"UCI Machine Learning Repository.*DIR/heart_disease/"):
        load(None, 0)


def test_a_hospital_alone_needs_its_own_file_only(folder):
    whole = load(folder.parent, 0)["va"]
    for name in ("cleveland", "hungarian", "switzerland"):
        (folder / f"processed.{name}.data").unlink()
    alone = load(folder.parent, 0)["va"]
    assert torch.equal(alone.train.x, whole.train.x)
    assert torch.equal(alone.test.x, whole.test.x)


def test_a_missing_file_is_named(folder):
    (folder / "processed.va.data").unlink()
    with pytest.raises(ConfigError, check=names("data file")):
        _ = load(folder.parent, 0)["va"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("40,1,1,120,200,0,0,150,0,1.0,?,?,?", "line 3 has 13 columns, not 14"),
        ("40,1,1,120,200,0,0,150,0,1.0,?,?,?,0,0", "line 3 has 15 columns, not 14"),
        ("<html>", "line 3 has 1 columns, not 14"),
        ("40,1,1,abc,200,0,0,150,0,1.0,?,?,?,0", "line 3 has 'abc' in column 4"),
        ("40,1,1,,200,0,0,150,0,1.0,?,?,?,0", "line 3 has '' in column 4"),
        ("40,1,1,inf,200,0,0,150,0,1.0,?,?,?,0", "line 3 has 'inf' in column 4"),
        ("nan,1,1,120,200,0,0,150,0,1.0,?,?,?,0", "line 3 has 'nan' in column 1"),
        ("40,1,5,120,200,0,0,150,0,1.0,?,?,?,0", "line 3 has '5' in column 3"),
        ("40,1,1,120,200,0,0.5,150,0,1.0,?,?,?,0", "line 3 has '0.5' in column 7"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(folder, line, words):
    path = folder / "processed.hungarian.data"
    path.write_text("\n".join([*ROWS.splitlines()[:2], line, ""]))
    with pytest.raises(ConfigError) as caught:
        _ = load(folder.parent, 0)["hungary"]
    assert f"the data file '{path}' is damaged: {words}" in str(caught.value)


def test_a_file_with_too_few_patients_is_refused(folder):
    (folder / "processed.va.data").write_text("")
    with pytest.raises(ConfigError, check=names("data file")):
        _ = load(folder.parent, 0)["va"]


@real
@pytest.mark.parametrize("seed", [0, 1])
def test_the_real_files_have_flambys_sizes(seed):
    data = load(Path(DATA_DIR or ""), seed)
    assert list(data) == ["cleveland", "hungary", "switzerland", "va"]
    assert [len(split.train) for split in data.values()] == [199, 172, 30, 85]
    assert [len(split.test) for split in data.values()] == [104, 89, 16, 45]
    for split in data.values():
        for part in (split.train, split.test):
            assert part.x.shape == (len(part.y), 13)
            assert (part.x.dtype, part.y.dtype) == (torch.float32, torch.int64)
        constant = split.train.x.std(dim=0) == 0
        torch.testing.assert_close(split.train.x.mean(dim=0), torch.zeros(13), atol=1e-5, rtol=0)
        torch.testing.assert_close(
            split.train.x.std(dim=0, correction=0)[~constant], torch.ones(int((~constant).sum()))
        )
    # Ill patients, counted in the files: 139 of Cleveland's 303; 1 healthy in Switzerland, to train on.
    assert int(data["cleveland"].train.y.sum() + data["cleveland"].test.y.sum()) == 139
    assert int(data["cleveland"].train.y.sum()) in (91, 92)
    assert (int(data["switzerland"].train.y.sum()), int(data["switzerland"].test.y.sum())) == (29, 16)
    assert bool((data["switzerland"].train.x[:, 3] == 0).all()), "cholesterol is 0 for all of them"


@real
def test_the_seed_decides_the_split():
    first, again, other = (load(Path(DATA_DIR or ""), seed)["va"].train.x for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
