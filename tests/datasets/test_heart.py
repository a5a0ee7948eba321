"""UCI Heart Disease: made files, whose features are computed by hand, and the real ones where they are."""

import os
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from naming import names

from fda_flower.datasets.heart import FILES, load
from fda_flower.errors import ConfigError

DATA_DIR = Path(os.environ.get("FDA_DATA_DIR", "no data"))
real = pytest.mark.skipif(
    not (DATA_DIR / "heart_disease").is_dir(), reason=f"heart_disease is not in FDA_DATA_DIR ({DATA_DIR})"
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
    raw = np.array(
        [
            [40, 1, 120, 200, 0, 150, 0, 1.0, 0, 0, 0, 0, 0],
            [50, 0, 130, 200, 0, 160, 1, 0.5, 1, 0, 0, 1, 0],
            [60, 1, 140, 200, 1, 170, 0, 2.0, 0, 1, 0, 0, 1],
            [70, 0, 150, 200, 0, 180, 1, -0.5, 0, 0, 1, 0, 0],
        ]
    )
    # 66 % of 4 is 2: one ill patient and a healthy one.
    assert (len(split.train), len(split.test), split.classes) == (2, 2, 2)
    matches = []
    for first, second, *rest in permutations(range(4)):
        train = raw[[first, second]]
        scale = abs(train[0] - train[1]) / 2
        scale[scale == 0] = 1
        x = (raw - train.mean(axis=0)) / scale
        if np.allclose(np.concatenate([split.train.x, split.test.x]), x[[first, second, *rest]], atol=1e-5):
            matches.append([first, second, *rest])
    (found,) = matches
    assert [*split.train.y.tolist(), *split.test.y.tolist()] == [i % 2 for i in found]
    assert sorted(split.train.y.tolist()) == [0, 1]
    assert split.train.x[:, 3].tolist() == [0, 0], "a constant feature is only centred"


def test_a_hospital_alone_needs_its_own_file_only(folder):
    whole = load(folder.parent, 0)["va"]
    for name in ("cleveland", "hungarian", "switzerland"):
        (folder / f"processed.{name}.data").unlink()
    alone = load(folder.parent, 0)
    assert np.array_equal(alone["va"].train.x, whole.train.x)
    assert np.array_equal(alone["va"].test.x, whole.test.x)
    with pytest.raises(ConfigError, check=names("data file", folder / "processed.cleveland.data")):
        _ = alone["cleveland"]
    with pytest.raises(ConfigError, check=names("data set", "heart", "DIR/heart_disease/")):
        load(None, 0)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("40,1,1,120,200,0,0,150,0,1.0,?,?,?", "line 3 has 13"),
        ("40,1,1,120,200,0,0,150,0,1.0,?,?,?,0,0", "line 3 has 15"),
        ("40,1,1,abc,200,0,0,150,0,1.0,?,?,?,0", "line 3 has 'abc' in column 4"),
        ("40,1,1,,200,0,0,150,0,1.0,?,?,?,0", "line 3 has '' in column 4"),
        ("40,1,1,120_80,200,0,0,150,0,1.0,?,?,?,0", "line 3 has '120_80' in column 4"),
        ("40,1,1,inf,200,0,0,150,0,1.0,?,?,?,0", "line 3 has 'inf' in column 4"),
        ("nan,1,1,120,200,0,0,150,0,1.0,?,?,?,0", "line 3 has 'nan' in column 1"),
        ("40,1,5,120,200,0,0,150,0,1.0,?,?,?,0", "line 3 has '5' in column 3"),
        ("40,1,1,120,200,0,0.5,150,0,1.0,?,?,?,0", "line 3 has '0.5' in column 7"),
        ("", "2 patients"),
    ],
)
def test_a_damaged_file_is_named_with_its_line_as_is_one_of_too_few_patients(folder, line, place):
    path = folder / "processed.hungarian.data"
    path.write_text("\n".join([*ROWS.splitlines()[:2], line, ""]))
    with pytest.raises(ConfigError, match=place, check=names("data file", path, "get it again")):
        _ = load(folder.parent, 0)["hungary"]


@real
@pytest.mark.parametrize("seed", [0, 1])
def test_the_real_files_have_flambys_sizes(seed):
    data = load(DATA_DIR, seed)
    assert list(data) == ["cleveland", "hungary", "switzerland", "va"]
    assert [len(split.train) for split in data.values()] == [199, 172, 30, 85]
    assert [len(split.test) for split in data.values()] == [104, 89, 16, 45]
    for split in data.values():
        for part in (split.train, split.test):
            assert part.x.shape == (len(part.y), 13)
            assert [part.x.dtype, part.y.dtype] == [np.dtype(np.float32), np.dtype(np.int64)]
        varies = split.train.x.std(axis=0) > 0
        np.testing.assert_allclose(split.train.x.mean(axis=0), np.zeros(13), atol=1e-5)
        np.testing.assert_allclose(split.train.x.std(axis=0), varies, rtol=1e-5)
    # Ill patients, counted in the files: 139 of Cleveland's 303; 1 healthy in Switzerland, to train on.
    assert int(data["cleveland"].train.y.sum() + data["cleveland"].test.y.sum()) == 139
    assert int(data["cleveland"].train.y.sum()) in (91, 92)
    assert (int(data["switzerland"].train.y.sum()), int(data["switzerland"].test.y.sum())) == (29, 16)
    assert bool((data["switzerland"].train.x[:, 3] == 0).all()), "cholesterol is 0 for all of them"


@real
def test_flambys_split_is_the_same_for_every_seed():
    ill = {"cleveland": (104, 48), "hungary": (89, 33), "switzerland": (16, 15), "va": (45, 35)}
    first, second = (load(DATA_DIR, seed, split="flamby") for seed in (0, 1))
    assert {name: (len(first[name].test), int(first[name].test.y.sum())) for name in ill} == ill
    assert all(np.array_equal(first[name].train.x, second[name].train.x) for name in ill)
