"""The model card: what it says of a run, in Markdown with the header that the Hugging Face hub reads."""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from fda_flower import run
from fda_flower.errors import ConfigError, printable
from fda_flower.experiments.pages import write_card
from fda_flower.reporting.card import Model, card
from fda_flower.reporting.results import RecordedRun
from fda_flower.reporting.tables import escaped


def record(number, accuracy=0.75, tests=40, **more):
    """A round with one source and a target, which the tests change."""
    return {
        "round": number,
        "held": None,
        "target": {"domain": "small"},
        "sources": {"large": {"domain": "large"}},
        "dropped": [],
        "seconds": {},
        "bytes-received": 2_000_000,
        "accuracy": accuracy,
        "test-examples": tests,
        **more,
    }


def recorded(*history, **more):
    settings = {"dataset": "digits", "shift": "rotate", "method": "fedgp-auto", "data_dir": "/home/me/data"}
    commands = ["fda run --shift rotate --data-dir /home/me/data"]
    return RecordedRun("FedGP_Auto", 0, history, {**settings, **more}, commands=commands)


def header_of(text):
    _, header, rest = text.split("---\n", 2)
    return yaml.safe_load(header), rest


def section(text, title):
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_header_is_what_the_hub_reads():
    header, _ = header_of(card(recorded(record(1), record(2, 0.5)), Model()))
    assert header["pipeline_tag"] == "image-classification"
    assert header["library_name"] == "fda-flower"
    (entry,) = header["model-index"]
    (result,) = entry["results"]
    said = "accuracy, 95% interval 47.0% to 75.8%"
    assert result["metrics"] == [{"type": "accuracy", "value": 0.625, "name": said}]
    assert "small" in result["dataset"]["name"]


@pytest.mark.parametrize(
    ("settings", "metric", "kind"),
    [
        ({"dataset": "heart"}, "accuracy", "tabular-classification"),
        ({"dataset": "table"}, "r2", "tabular-regression"),
        ({"dataset": "table", "dataset_options": {"text": "note"}}, "accuracy", "text-classification"),
        ({"dataset": "pacs"}, "accuracy", "image-classification"),
        ({"dataset": "hf"}, "accuracy", "tabular-classification"),
        ({"dataset": "hf", "dataset_options": {"image_size": "8x8"}}, "accuracy", "image-classification"),
    ],
)
def test_the_task_follows_from_the_data_and_the_figure(settings, metric, kind):
    shown = RecordedRun("Ridge", 0, [record(1, r2=0.5)], settings, metric=metric)
    assert header_of(card(shown, Model()))[0]["pipeline_tag"] == kind


@pytest.mark.parametrize(("shape", "kind"), [([7], "tabular"), ([3, 8, 8], "image")])
def test_the_task_of_other_data_follows_from_the_shape_of_the_samples(shape, kind):
    described = Model(description={"shape": shape})
    for made, model in ((recorded(record(1), dataset="my-own"), described), (noted(shape), Model())):
        assert header_of(card(made, model))[0]["pipeline_tag"] == f"{kind}-classification"


def noted(shape):
    """A run whose model another node holds."""
    return replace(recorded(record(1), dataset="hf"), notes={"data": {"shape": shape}})


NAMES = ["a | b", "*a*", "<b>a</b>", "a\nb", "_a_", "[a](b)", "a `b`", "a\\", "&lt;", "a\x7f\u2028b"]
"""Names from outside that Markdown or YAML would change."""


@pytest.mark.parametrize("name", NAMES)
def test_a_name_from_outside_is_shown_as_it_is(name):
    floor = {"class": name, "accuracy": 0.5, "balanced-accuracy": 0.5}
    counts = {"classes": [name, "b"], "counts": [[1, 3], [0, 4]], "most-frequent": floor}
    shown = record(1, target={"domain": name}, confusion=counts)
    text = card(recorded(shown, shift=name), Model(description={"class-names": [name]}, path=name))
    header, _ = header_of(text)
    assert printable(name) in header["model-index"][0]["results"][0]["dataset"]["name"]
    plain = escaped(name)
    assert f"\n# FedGP_Auto on digits, {plain}\n" in text
    assert f"**{plain}**" in section(text, "The model")
    assert f"| {plain} | target | 1 | 0 |" in section(text, "Who took part")
    assert f"| {plain} | 1.000 | 0.250 |" in section(text, "Results")
    assert f"the class {plain}." in section(text, "Limits")


def test_without_a_figure_there_is_none_in_the_header_or_the_text():
    bare = record(1)
    del bare["accuracy"], bare["test-examples"]
    header, text = header_of(card(recorded(bare), Model()))
    assert "model-index" not in header
    assert "%" not in section(text, "Results")


def test_it_says_how_sure_the_figure_is_and_that_few_tests_are_few():
    text = card(recorded(record(1)), Model())
    assert "75.0%" in section(text, "Results")
    assert "40 test samples" in section(text, "Results")
    assert "40 test samples" in section(text, "Limits")
    assert "test samples" not in section(card(recorded(record(1, tests=400)), Model()), "Limits")
    text = card(recorded(record(1, tests=400) | {"test-units": 50, "test-effective": 60.0}), Model())
    assert "on 400 test samples of 50 patients" in section(text, "Results")
    assert "400 test samples of 50 patients are few" in section(text, "Limits")


def test_it_says_who_is_a_patient():
    assert "patient" not in section(card(recorded(record(1)), Model()), "Data")
    text = card(recorded(record(1), dataset_options={"group": "id|visit"}), Model())
    assert "option 'group': id\\|visit." in section(text, "Data")


def test_where_every_site_is_a_target_it_is_for_all_of_them():
    site = {"labels": 30, "alone": 0.6, "with-others": 0.7, "gain": 0.1, "fewest-cases": 2}
    round_of_all = record(1, target={}, sites={"large": site}, sizes={"large": {"labelled": 30}})
    text = card(recorded(round_of_all, target="all"), Model())
    assert "| large | source and target | 1 | 0 |" in section(text, "Who took part")
    assert "domain all" not in text
    assert "target **" not in section(text, "The model")
    assert "mean of the sites" in section(text, "Results")
    assert "| large | 30 | 2 | 60.0 | 70.0 | +10.0 |" in section(text, "Results")
    assert "Few test cases of the rarest class (large 2)" in section(text, "Results")
    assert "| size |" not in text, "a server does not count them"


def test_it_says_who_took_part_in_how_many_rounds():
    dropped = record(2, dropped=[{"domain": "large", "reason": "no numbers"}], sources={}, held="no source")
    text = section(card(recorded(record(1), dropped), Model()), "Who took part")
    assert "| large | source | 1 | 1 |" in text
    assert "| small | target | 2 | 0 |" in text
    assert "1 of them" in text


def test_a_target_that_only_evaluates_takes_part():
    text = section(card(recorded(record(1, target=None), target="small"), Model()), "Who took part")
    assert "| small | target | 1 | 0 |" in text


SEVERAL: dict[str, dict[str, Any]] = {
    "mass": {"support": 9, "auroc": 0.75},
    "edema": {"support": 0, "auroc": None},
}
SHARES: dict[str, dict[str, Any]] = {
    name: dict.fromkeys(("auprc", "brier", "ece"), each["auroc"]) for name, each in SEVERAL.items()
}


@pytest.mark.parametrize(
    ("fields", "options", "predicts", "outputs", "tag"),
    [
        (
            {"c-index": 0.75, "followed": {"events": 9, "curve": {"brier": 0.2}}, "brier": 0.1},
            {"event": "died", "label": "months", "horizons": "5,10"},
            "survival (without 'died') at months 5, 10",
            "horizons",
            "survival-analysis",
        ),
        (
            {"labels": {"labels": {name: SEVERAL[name] | SHARES[name] for name in SEVERAL}}, "auroc": 0.75},
            {},
            "each label, yes or no: mass, edema",
            "labels",
            "multi-label-classification",
        ),
    ],
)
def test_a_survival_and_several_labels_say_what_is_predicted_and_their_cases(
    fields, options, predicts, outputs, tag
):
    shown = recorded(record(1, None, **fields), dataset_options=options, dataset="table")
    told = {"class-names": ["mass", "edema"] if outputs == "labels" else [], "classes": 2}
    text = card(replace(shown, metric="auroc" if outputs == "labels" else "c-index"), Model(told))
    assert tag in header_of(text)[0]["tags"]
    rows = section(text, "The model")
    assert f"| predicts | {predicts} |" in rows
    assert f"| {outputs} | 2 |" in rows
    results = section(text, "Results")
    if outputs == "labels":
        assert "Means are over 1 of 2 labels: no test sample has edema" in results
        assert "Few test cases (mass 9): AUROC hang on them" in results
        assert "| edema | 0 of 40 | - | - | - | - |" in results
        assert "| AUROC (mean over labels) | 75.0% |" in results
    else:
        assert "on 40 test samples of the target (9 of 40 with the event)" in results
        assert "| Brier score (mean over horizons) | 0.100 | 0.200 (the same shares for all) |" in results
        assert "Few test cases (with the event 9): C-index, Brier score hang on them" in results


def test_it_sums_up_what_the_sites_logs_say():
    arrays = {
        "arrays": {"kind": "arrays", "bytes": 900_000},
        "metrics": {"kind": "metrics", "bytes": 100_000},
    }
    sent = [
        {"domain": "large", "records": arrays, "bytes": 1_000_000},
        {"domain": "large", "records": arrays, "bytes": 1_000_000},
        {"domain": "small", "records": {}, "bytes": 0, "refused": "no"},
    ]
    text = section(card(recorded(record(1)), Model(sent=sent)), "What left each site")
    assert "2.0 MB" in text
    assert "| large | 2 | 2.00 | arrays (arrays) x 2, metrics (metrics) x 2 |" in text
    assert "| small | 1 | 0.00 | nothing x 1 |" in text


def test_privacy_that_was_spent_and_that_was_not():
    spent = record(1, privacy={"large": {"epsilon": 1.23456, "delta": 1e-5}})
    assert "| large | each site | 1.235 | 1e-05 |" in section(card(recorded(spent), Model()), "Privacy")
    patients = record(1, privacy={"large": {"epsilon": 1.0, "delta": 1e-5, "unit": "patient"}})
    assert "| large | each patient | 1 | 1e-05 |" in section(card(recorded(patients), Model()), "Privacy")
    assert "no guarantee" in section(card(recorded(record(1)), Model()), "Privacy")


def test_weak_and_missing_classes_are_limits():
    confusion = {"classes": ["cat", "dog", "owl"], "counts": [[1, 3, 0], [0, 4, 0], [0, 0, 0]]}
    text = section(card(recorded(record(1, confusion=confusion)), Model()), "Limits")
    assert "cat" in text
    assert "owl" in text
    assert "dog" not in text


def test_it_names_no_folder_of_the_machine():
    text = card(recorded(record(1)), Model(path="mine"))
    assert "/home/me" not in text
    assert "--data-dir DIR" in text


def test_of_a_run_it_has_the_model_and_the_hashes(tmp_path):
    run(shift="rotate", rounds=2, output=tmp_path / "mine", source_samples=40, test_samples=60)
    path = write_card(tmp_path / "mine")
    assert path == tmp_path / "mine" / "README.md"
    text, told = path.read_text(), json.loads((tmp_path / "mine" / "model.json").read_text())
    assert f"{told['sha256']}" in section(text, "Check it")
    last = json.loads((tmp_path / "mine" / "rounds.jsonl").read_text().splitlines()[-1])["chain"]["hash"]
    assert f"fda verify mine --expect {last}" in section(text, "Check it")
    assert str(tmp_path) not in text
    assert header_of(text)[0]["metrics"] == ["accuracy"]


def test_of_a_folder_without_a_run_there_is_none(tmp_path):
    with pytest.raises(ConfigError) as error:
        write_card(tmp_path)
    assert error.value.thing == str(tmp_path)
    assert "is damaged" not in str(error.value)


def test_a_table_of_settings_has_what_is_not_the_default():
    text = section(card(recorded(record(1), rounds=7), Model()), "How it was made")
    assert "| rounds | 7 |" in text


def test_a_model_that_is_not_better_than_the_most_frequent_class_says_so():
    least = {"class": "ill", "accuracy": 0.75, "balanced-accuracy": 0.5}
    confusion = {"classes": ["ill", "well"], "counts": [[30, 0], [10, 0]], "most-frequent": least}
    text = section(card(recorded(record(1, confusion=confusion)), Model()), "Results")
    assert "| well | - | 0.000 | 0.000 | 10 |" in text, "it is never predicted"
    assert "Not better" in text
    assert "| accuracy | 75.0% | 59.8% to 85.8% | 75.0% (most frequent class) |" in text
