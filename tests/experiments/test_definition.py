"""Files of experiments: their content, and errors that name the file, the key and the valid keys."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from fda_flower import ConfigError
from fda_flower.experiments import Experiment, read_experiment
from fda_flower.experiments.definition import RUN_KEYS, slug

HEAD = 'title = "A title"\n'
RUN = '[run]\nmodel = "mlp"\nshift = "noise"\n'
ROW = '[[rows]]\nlabel = "FedAvg"\nmethod = "fedavg"\n'
COLUMN = '[[columns]]\nlabel = "0.2"\nshift-options = { std = 0.2 }\n'
GROUP = '[[groups]]\nlabel = "few"\ntarget-samples = 20\n'

WHOLE = """
title = "Digits with noise"
source = "Nobody, 2024, Table 1"
note = \"\"\"
More than
a line.
\"\"\"
axis = "Noise"
group-axis = "Target"
figures = ["rounds"]
average = true
report = "regret"
rivals = ["FedGP", "FedAvg"]
seeds = [0, 2]

[run]
model = "mlp"
shift = "noise"
rounds = 4

[[groups]]
label = "few"
value = 16
target-samples = 16

[[groups]]
label = "many"
value = 32
target-samples = 32

[[columns]]
label = "0.2"
value = 0.2
shift-options = { std = 0.2 }

[[columns]]
label = "0.4"
value = 0.4
shift-options = { std = 0.4 }

[[rows]]
label = "FedAvg"
method = "fedavg"
paper.few = { "0.2" = 50.5, "0.4" = 40 }
paper.many = { "0.4" = 45.25 }

[[rows]]
label = "FedGP"
method = "fedgp"
"""


@pytest.fixture
def read(tmp_path):
    """Read an experiment from text."""

    def read_text(*parts: str) -> Experiment:
        path = tmp_path / "made.toml"
        path.write_text("\n".join(parts), encoding="utf-8")
        return read_experiment(path)

    return read_text


@pytest.fixture
def refused(read, tmp_path):
    """The message for a file that is refused, which names the file."""

    def refuse(*parts: str) -> str:
        with pytest.raises(ConfigError) as caught:
            read(*parts)
        message = str(caught.value)
        assert str(tmp_path / "made.toml") in message
        return message

    return refuse


# The content of a file


def test_a_whole_file(read):
    experiment = read(WHOLE)
    assert (experiment.name, experiment.title) == ("made", "Digits with noise")
    assert (experiment.source, experiment.note) == ("Nobody, 2024, Table 1", "More than\na line.")
    assert (experiment.axis, experiment.group_axis) == ("Noise", "Target")
    assert (experiment.figures, experiment.average, experiment.seeds) == (("rounds",), True, (0, 2))
    assert (experiment.report, experiment.rivals) == ("regret", ("FedGP", "FedAvg"))
    assert experiment.run == {"model": "mlp", "shift": "noise", "rounds": 4}
    assert [(g.label, g.value, g.settings) for g in experiment.groups] == [
        ("few", 16, {"target_samples": 16}),
        ("many", 32, {"target_samples": 32}),
    ]
    assert [(c.label, c.value, c.settings) for c in experiment.columns] == [
        ("0.2", 0.2, {"shift_options": {"std": 0.2}}),
        ("0.4", 0.4, {"shift_options": {"std": 0.4}}),
    ]
    assert [(r.label, r.settings) for r in experiment.rows] == [
        ("FedAvg", {"method": "fedavg"}),
        ("FedGP", {"method": "fedgp"}),
    ]
    assert experiment.text == WHOLE


SHORT = """
extends = "whole"
title = "The same, shorter"

[run]
rounds = 2

[[rows]]
label = "FedGP"

[[rows]]
label = "FedDA"
method = "fedda"

[[rows]]
label = "FedAvg"
"""


def test_what_a_file_does_not_say_is_that_of_the_file_it_extends(read, tmp_path):
    (tmp_path / "whole.toml").write_text(WHOLE, encoding="utf-8")
    whole, short = read(WHOLE), read(SHORT)
    assert short.title == "The same, shorter"
    assert short.run == {**whole.run, "rounds": 2}
    fedavg, fedgp = whole.rows
    assert short.rows == (
        fedgp,
        replace(fedavg, label="FedDA", settings={"method": "fedda"}, paper={}),
        fedavg,
    )
    same = [field.name for field in fields(whole) if field.name not in ("title", "text", "run", "rows")]
    assert [getattr(short, name) for name in same] == [getattr(whole, name) for name in same]


def test_the_text_of_a_file_that_extends_another_is_whole(read, tmp_path):
    (tmp_path / "whole.toml").write_text(WHOLE, encoding="utf-8")
    short = read(SHORT)
    (tmp_path / "whole.toml").unlink()
    assert read(short.text) == short


@pytest.mark.parametrize(
    ("other", "words"), [("[]", "cannot be read"), (SHORT, "extends"), ("rows = 1", "rows")]
)
def test_a_file_that_cannot_be_extended_is_refused(refused, tmp_path, other, words):
    (tmp_path / "whole.toml").write_text(other, encoding="utf-8")
    assert words in refused(SHORT)


def test_places_go_by_group_row_and_column(read):
    assert read(WHOLE).places == [
        ("few", "FedAvg", "0.2"),
        ("few", "FedAvg", "0.4"),
        ("few", "FedGP", "0.2"),
        ("few", "FedGP", "0.4"),
        ("many", "FedAvg", "0.2"),
        ("many", "FedAvg", "0.4"),
        ("many", "FedGP", "0.2"),
        ("many", "FedGP", "0.4"),
    ]


def test_the_papers_values_by_place(read):
    assert read(WHOLE).paper == {
        ("few", "FedAvg", "0.2"): 50.5,
        ("few", "FedAvg", "0.4"): 40.0,
        ("many", "FedAvg", "0.4"): 45.25,
    }


@pytest.mark.parametrize("groups", ["", "groups = []\n"])
def test_without_groups_there_is_one_without_a_name(read, groups):
    experiment = read(HEAD, groups, RUN, COLUMN, ROW, 'paper = { "0.2" = 61 }')
    assert experiment.places == [("", "FedAvg", "0.2")]
    assert experiment.paper == {("", "FedAvg", "0.2"): 61.0}
    assert experiment.config(("", "FedAvg", "0.2"), 0, {}).method == "fedavg"


def test_what_may_be_left_out(read):
    experiment = read(HEAD, COLUMN, ROW.replace("method", 'shift = "noise"\nmethod'))
    assert (experiment.source, experiment.note, experiment.axis, experiment.group_axis) == ("", "", "", "")
    assert (experiment.seeds, experiment.average, experiment.run) == ((0,), False, {})
    assert experiment.figures == ("columns", "rounds")
    assert (experiment.report, experiment.rivals) == ("table", ())
    assert [column.value for column in experiment.columns] == [None]


def test_an_experiment_of_the_project_has_a_paper_value_for_every_cell():
    path = Path(__file__).resolve().parents[2] / "experiments" / "fashion_mnist_noise.toml"
    experiment = read_experiment(path)
    assert experiment.name == "fashion_mnist_noise"
    assert len(experiment.places) == len(experiment.paper) == 9 * 5


# Settings of a cell


def test_a_cell_has_the_settings_of_all_it_is_in_and_the_seed(read):
    config = read(WHOLE).config(("many", "FedGP", "0.4"), 7, {})
    assert (config.model, config.shift, config.rounds) == ("mlp", "noise", 4)
    assert (config.target_samples, config.shift_options) == (32, (("std", 0.4),))
    assert (config.method, config.seed) == ("fedgp", 7)


LAYERS = [
    ("[run]", "rounds = 1"),
    ("[[groups]]\nlabel = 'g'", "rounds = 2"),
    ("[[columns]]\nlabel = 'c'", "rounds = 3"),
    ("[[rows]]\nlabel = 'r'", "rounds = 4"),
    ("[rows.at.g]", "rounds = 5"),
    ("[rows.at.c]", "rounds = 6"),
]


@pytest.mark.parametrize("last", range(1, len(LAYERS) + 1))
def test_the_more_specific_setting_wins(read, last):
    """The run's rounds are those of the last layer that names them."""
    experiment = read(HEAD, *(f"{head}\n{line if i < last else ''}" for i, (head, line) in enumerate(LAYERS)))
    assert experiment.config(("g", "r", "c"), 0, {}).rounds == last
    assert experiment.config(("g", "r", "c"), 0, {"rounds": 9}).rounds == 9


def test_option_tables_merge_key_by_key(read):
    experiment = read(
        HEAD,
        '[run]\nshift = "rotate"\nmethod = "fedgp"\nshift-options = { angle = 10, invert = false }',
        "[[columns]]\nlabel = 'turned'\nshift-options = { angle = 20 }",
        "[[columns]]\nlabel = 'negative'\nshift-options = { invert = true }",
        "[[rows]]\nlabel = 'model'\nmethod-options = { granularity = 'model' }",
        "[rows.at.turned]\nmethod-options = { magnitude = 'cosine' }",
    )
    turned, negative = (experiment.config(("", "model", column), 0, {}) for column in ("turned", "negative"))
    assert turned.shift_options == (("angle", 20.0), ("invert", False))
    assert turned.method_options == (("granularity", "model"), ("magnitude", "cosine"))
    assert negative.shift_options == (("angle", 10.0), ("invert", True))
    assert negative.method_options == (("granularity", "model"),)
    overrides = {"shift_options": {"angle": "30"}}
    assert experiment.config(("", "model", "turned"), 0, overrides).shift_options == (
        ("angle", 30.0),
        ("invert", False),
    )
    assert experiment.run["shift_options"] == {"angle": 10, "invert": False}, "nothing is changed in place"


def test_at_is_for_its_column_or_group_alone(read):
    experiment = read(WHOLE, "[rows.at.few]\nbeta = 0.25\n[rows.at.'0.4']\nepochs = 3")
    settings = {
        place: (config.beta, config.epochs)
        for place in experiment.places
        for config in [experiment.config(place, 0, {})]
        if place[1] == "FedGP"
    }
    assert settings == {
        ("few", "FedGP", "0.2"): (0.25, 1),
        ("few", "FedGP", "0.4"): (0.25, 3),
        ("many", "FedGP", "0.2"): (None, 1),
        ("many", "FedGP", "0.4"): (None, 3),
    }


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("FedGP_0.5", "FedGP_0.5"),
        ("-90%", "-90_"),
        ("a b/c", "a_b_c"),
        ("../up", ".._up"),
        ("β = 1", "_=_1"),
    ],
)
def test_a_label_as_a_part_of_a_files_name(label, name):
    assert slug(label) == name


# Mistakes

TOP_KEYS = ["title", "source", "seeds", "figures", "run", "rows", "columns", "groups"]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["colour = 1\n", HEAD, RUN, COLUMN, ROW], ["'colour'", "the file", *TOP_KEYS]),
        ([HEAD, RUN, "colour = 1", COLUMN, ROW], ["'colour'", "[run]", "method", "learning-rate-factor"]),
        ([HEAD, RUN, COLUMN, "colour = 1", ROW], ["'colour'", "[[columns]] number 1", "label", "value"]),
        ([HEAD, RUN, COLUMN, ROW, "colour = 1"], ["'colour'", "[[rows]] number 1", "paper", "at", "beta"]),
        ([HEAD, RUN, COLUMN, ROW, "value = 1"], ["'value'", "[[rows]] number 1"]),
        ([HEAD, RUN, COLUMN, "paper = {}", ROW], ["'paper'", "[[columns]] number 1"]),
        ([HEAD, RUN, COLUMN, ROW, GROUP, "colour = 1"], ["'colour'", "[[groups]] number 1", "label"]),
        ([HEAD, RUN, COLUMN, ROW, "at.'0.2'.colour = 1"], ["'colour'", "[[rows]] number 1, at '0.2'"]),
        ([HEAD, RUN, COLUMN, ROW, "at.'0.3' = {}"], ["'0.3'", "'at' of row 'FedAvg'", "choose one of 0.2"]),
        ([HEAD, RUN, COLUMN, ROW, "at.few = {}"], ["'few'", "'at' of row 'FedAvg'", "choose one of 0.2"]),
        ([HEAD, RUN, "seed = 1", COLUMN, ROW], ["'seed'", "[run]"]),
        ([HEAD, RUN, "device = 'cpu'", COLUMN, ROW], ["'device'", "[run]"]),
    ],
    ids=str,
)
def test_an_unknown_key_is_named_with_where_it_is_and_the_valid_ones(refused, parts, words):
    message = refused(*parts)
    assert "unknown key" in message
    assert "choose one of" in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("title = 3", "'title' must be text, it is 3"),
        ("source = ['a']", "'source' must be text"),
        ("note = 1", "'note' must be text, it is 1"),
        ("seeds = 3", "'seeds' must be a list, it is 3"),
        ("figures = 'rounds'", "'figures' must be a list, it is 'rounds'"),
        ("average = 1", "'average' must be true or false, it is 1"),
        ("run = 'fast'", "'run' must be a table, it is 'fast'"),
        ("rows = 'many'", "'rows' must be a list, it is 'many'"),
        ("rows = ['many']", "[[rows]] number 1 needs a label: give it as text"),
        ("groups = { few = 1 }", "'groups' must be a list"),
        ("seeds = []", "'seeds' is []: give different whole numbers, such as [0, 1, 2]"),
        ("seeds = [0, 0]", "'seeds' is [0, 0]: give different whole numbers"),
        ("seeds = [-1]", "'seeds' is [-1]"),
        ("seeds = [1.5]", "'seeds' is [1.5]"),
        ("seeds = [true]", "'seeds' is [True]"),
        ("seeds = ['0']", "'seeds' is ['0']"),
        (
            "figures = ['pie']",
            "unknown figure 'pie': choose one of best-rule, betas, columns, lost, regret",
        ),
        ("figures = [['rounds']]", "unknown figure"),
        ("report = 'essay'", "unknown report 'essay': choose one of lost, regret, table"),
        ("report = 1", "'report' must be text, it is 1"),
        ("rivals = 'FedAvg'", "'rivals' must be a list, it is 'FedAvg'"),
        ("rivals = ['FedAvg', 'Nobody']", "unknown row in 'rivals' 'Nobody': choose one of FedAvg"),
        ("rivals = []", "'rivals' is []: give the labels of two rows, or leave it out"),
        ("rivals = ['FedAvg', 'FedAvg']", "'rivals' is ['FedAvg', 'FedAvg']: give the labels of two rows"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(refused, line, message):
    key = line.split(" ")[0]
    parts = {
        "title": HEAD,
        "run": RUN,
        "columns": COLUMN.replace("shift-options", "shift = 'noise'\nshift-options"),
        "rows": ROW,
    }
    assert message in refused(line, *(part for name, part in parts.items() if name != key))


@pytest.mark.parametrize("missing", [HEAD, COLUMN, ROW, "empty"])
def test_title_rows_and_columns_are_needed(refused, missing):
    if missing == "empty":
        assert "'rows' is missing" in refused(HEAD, "rows = []", COLUMN)
        assert "'title' is missing" in refused("title = ''", RUN, COLUMN, ROW)
        return
    key = {HEAD: "title", COLUMN: "columns", ROW: "rows"}[missing]
    assert f"'{key}' is missing" in refused(*(part for part in (HEAD, RUN, COLUMN, ROW) if part != missing))


@pytest.mark.parametrize(
    ("kind", "entry", "message"),
    [
        ("rows", "method = 'fedda'", "[[rows]] number 2 needs a label: give it as text"),
        ("rows", "label = 2", "[[rows]] number 2 needs a label: give it as text"),
        ("rows", "label = ''", "[[rows]] number 2 needs a label: give it as text"),
        ("rows", "label = 'FedAvg'", "[[rows]] has the label 'FedAvg' twice, or one like it: rename it"),
        ("columns", "label = '0.2'", "[[columns]] has the label '0.2' twice, or one like it: rename it"),
        ("groups", "label = 'few'", "[[groups]] has the label 'few' twice, or one like it: rename it"),
        ("columns", "label = 'x'\nvalue = 'far'", "'value' of [[columns]] number 2 is 'far': give a number"),
        ("groups", "label = 'x'\nvalue = true", "'value' of [[groups]] number 2 is True: give a number"),
        ("rows", "label = 'x'\nat = 3", "'at' of [[rows]] number 2 is 3, it must be a table"),
        ("rows", "label = 'x'\nat.'0.2' = 3", "[[rows]] number 2, at '0.2' is 3: it must be a table"),
    ],
)
def test_entries_need_labels_of_their_own_and_numbers(refused, kind, entry, message):
    assert message in refused(HEAD, RUN, GROUP, COLUMN, ROW, f"[[{kind}]]\n{entry}")


def test_labels_that_make_the_same_files_are_refused(refused):
    message = refused(HEAD, RUN, COLUMN, "[[rows]]\nlabel = 'a b'", "[[rows]]\nlabel = 'a/b'")
    assert "[[rows]] has the label 'a b' twice, or one like it: rename it" in message
    columns = "[[columns]]\nlabel = 'c'\n[[columns]]\nlabel = 'b-c'"
    message = refused(HEAD, RUN, columns, "[[rows]]\nlabel = 'a'", "[[rows]]\nlabel = 'a-b'")
    assert "cells 'a / b-c' and 'a-b / c' would have files of the same name, 'a-b-c'" in message


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([RUN, COLUMN, ROW, "paper = 5"], "'paper' of row 'FedAvg' is 5: it must be a table"),
        (
            [RUN, COLUMN, ROW, "paper = { '0.3' = 5 }"],
            "unknown key '0.3' in 'paper' of row 'FedAvg' (did you mean '0.2'?): choose one of 0.2",
        ),
        (
            [RUN, COLUMN, ROW, "paper = { '0.2' = 'high' }"],
            "'paper' of row 'FedAvg', column '0.2' is 'high': give a number",
        ),
        (
            [RUN, COLUMN, ROW, "paper = { '0.2' = true }"],
            "'paper' of row 'FedAvg', column '0.2' is True: give a number",
        ),
        ([RUN, GROUP, COLUMN, ROW, "paper = 5"], "'paper' of row 'FedAvg' is 5: it must be a table"),
        (
            [RUN, GROUP, COLUMN, ROW, "paper = { '0.2' = 5 }"],
            "unknown key '0.2' in 'paper' of row 'FedAvg': choose one of few",
        ),
        (
            [RUN, GROUP, COLUMN, ROW, "paper = { few = 5 }"],
            "'paper' of row 'FedAvg' is 5: it must be a table",
        ),
        (
            [RUN, GROUP, COLUMN, ROW, "paper.few = { '0.3' = 5 }"],
            "unknown key '0.3' in 'paper' of row 'FedAvg' (did you mean '0.2'?): choose one of 0.2",
        ),
    ],
)
def test_the_papers_values_are_numbers_of_columns_and_groups(refused, parts, message):
    assert message in refused(HEAD, *parts)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('headline = "best"', "'headline' of row 'FedAvg' is 'best': choose model or average"),
        ('headline = "average"', "'headline' of row 'FedAvg' is 'average', but its runs average no models"),
    ],
)
def test_the_headline_of_a_row_is_the_model_or_an_average_that_there_is(refused, more, message):
    assert message in refused(HEAD, RUN, COLUMN, ROW + more)


@pytest.mark.parametrize(
    ("parts", "where"),
    [
        (['[run]\nshift-options = "std=0.1"', COLUMN, ROW], "[run]"),
        ([RUN, "[[columns]]\nlabel = 'x'\nshift-options = 5", ROW], "[[columns]] number 1"),
        ([RUN, COLUMN, ROW, "at.'0.2'.method-options = []"], "[[rows]] number 1, at '0.2'"),
    ],
)
def test_options_are_tables(refused, parts, where):
    message = refused(HEAD, *parts)
    assert f"-options' in {where} is" in message
    assert "it must be a table" in message


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (
            [RUN, COLUMN, ROW.replace("fedavg", "fedmagic")],
            ["cell 'FedAvg, 0.2'", "unknown method 'fedmagic'"],
        ),
        ([RUN, GROUP.replace("20", "0"), COLUMN, ROW], ["cell 'few, FedAvg, 0.2'", "target-samples is '0'"]),
        ([RUN, COLUMN.replace("std", "size"), ROW], ["cell 'FedAvg, 0.2'", "unknown option 'size'"]),
        ([RUN, COLUMN, ROW, "beta = 0.5"], ["cell 'FedAvg, 0.2'", "has no beta"]),
        ([RUN, COLUMN, ROW, "rounds = 'many'"], ["cell 'FedAvg, 0.2'", "'rounds'", "'many'"]),
        ([RUN, COLUMN, ROW, "only-sources = 5"], ["cell 'FedAvg, 0.2'", "only-sources is 5"]),
    ],
)
def test_a_cell_whose_configuration_is_invalid_is_named(refused, parts, words):
    message = refused(HEAD, *parts)
    for word in ("experiment 'made'", *words):
        assert word in message


def test_invalid_overrides_name_the_cell_too(read):
    with pytest.raises(ConfigError, match=r"cell 'FedAvg, 0\.2': rounds is 0: it must be at least 1"):
        read(HEAD, RUN, COLUMN, ROW).config(("", "FedAvg", "0.2"), 0, {"rounds": 0})


@pytest.mark.parametrize("text", ["title = ", "[[rows]\n", "a = 1\na = 2\n"])
def test_broken_toml_is_refused(refused, text):
    assert "cannot be read" in refused(text)


def test_bytes_that_are_not_text_are_refused(tmp_path):
    (tmp_path / "made.toml").write_bytes(b'title = "\xff"')
    with pytest.raises(ConfigError, match=r"made\.toml' cannot be read"):
        read_experiment(tmp_path / "made.toml")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "nothing.toml", tmp_path):
        with pytest.raises(ConfigError, match=f"the experiment '{path}' cannot be read"):
            read_experiment(str(path))


def test_machine_settings_are_no_keys_of_an_experiment():
    assert not RUN_KEYS & {"seed", "data-dir", "device", "threads"}
    assert {"method", "rounds", "shift-options", "learning-rate-factor"} <= RUN_KEYS
