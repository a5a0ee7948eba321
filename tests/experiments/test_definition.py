"""Files of experiments: their content, and errors that name the file, the key and the valid keys."""

from dataclasses import fields, replace
from itertools import product

import pytest
from naming import names

from fda_flower import ConfigError
from fda_flower.experiments import Experiment, read_experiment
from fda_flower.reporting.results import slug

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
    """What is wrong in a file that is refused: the thing and its value; the error names the file."""

    def refuse(*parts: str) -> tuple[str, object]:
        with pytest.raises(ConfigError, check=names(str(tmp_path / "made.toml"))) as caught:
            read(*parts)
        error = caught.value.__cause__
        while isinstance(error, ConfigError) and isinstance(error.__cause__, ConfigError):
            error = error.__cause__
        assert isinstance(error, ConfigError)
        return error.thing, error.value

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
    labels = ("few", "many"), ("FedAvg", "FedGP"), ("0.2", "0.4")
    assert experiment.places == list(product(*labels))
    assert experiment.paper == {
        ("few", "FedAvg", "0.2"): 50.5,
        ("few", "FedAvg", "0.4"): 40.0,
        ("many", "FedAvg", "0.4"): 45.25,
    }
    config = experiment.config(("many", "FedGP", "0.4"), 7, {})
    assert (config.model, config.shift, config.rounds) == ("mlp", "noise", 4)
    assert (config.target_samples, config.shift_options) == (32, (("std", 0.4),))
    assert (config.method, config.seed) == ("fedgp", 7)


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
    (tmp_path / "whole.toml").unlink()
    assert read(short.text) == short, "its text is whole"


@pytest.mark.parametrize(("other", "thing"), [("[]", "experiment"), (SHORT, "extends"), ("rows = 1", "rows")])
def test_a_file_that_cannot_be_extended_is_refused(refused, tmp_path, other, thing):
    (tmp_path / "whole.toml").write_text(other, encoding="utf-8")
    assert refused(SHORT)[0] == thing


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ("[[rows]]\nlabel = 'FedGp'", ("label in [[rows]]", "FedGp")),
        ("[[rows]]\nlabel = 'FedGP'\npaper.few = {}", ("label in [[rows]]", "FedGP")),
        ("[[columns]]\nlabel = '0.3'", ("label in [[columns]]", "0.3")),
        ("[[columns]]\nlabel = '0.4'\nvalue = 4", ("label in [[columns]]", "0.4")),
        ("[[groups]]\nlabel = 'none'", ("label in [[groups]]", "none")),
    ],
)
def test_an_entry_without_settings_that_is_not_in_the_other_file_is_refused(refused, tmp_path, entry, error):
    (tmp_path / "whole.toml").write_text(WHOLE, encoding="utf-8")
    assert refused('extends = "whole"', entry) == error


def test_without_columns_there_is_one_without_a_name(read):
    experiment = read(HEAD, 'figures = ["runs"]', RUN, ROW)
    assert experiment.places == [("", "FedAvg", "")]
    assert experiment.config(("", "FedAvg", ""), 0, {}).method == "fedavg"


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


# Settings of a cell


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
        for place, config in experiment.configs(experiment.places, 0, {}).items()
        if place[1] == "FedGP"
    }
    assert settings == {
        ("few", "FedGP", "0.2"): (0.25, 1),
        ("few", "FedGP", "0.4"): (0.25, 3),
        ("many", "FedGP", "0.2"): (None, 1),
        ("many", "FedGP", "0.4"): (None, 3),
    }


def test_a_label_as_a_part_of_a_files_name():
    names = {"FedGP_0.5": "FedGP_0.5", "-90%": "-90_", "a b/c": "a_b_c", "../up": ".._up", "β = 1": "_=_1"}
    assert {label: slug(label) for label in names} == names


# Mistakes


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("title = 3", ("title", 3)),
        ("seeds = 3", ("seeds", 3)),
        ("average = 1", ("average", 1)),
        ("run = 'fast'", ("run", "fast")),
        ("rows = ['many']", ("[[rows]] number 1", None)),
        ("rows = []", ("rows", None)),
        ("columns = []", ("columns", None)),
        ("title = ''", ("title", None)),
        ("", ("title", None)),
        ("groups = { few = 1 }", ("groups", {"few": 1})),
        *((f"seeds = {bad}", ("'seeds'", bad)) for bad in ([], [0, 0], [-1], [1.5], ["0"])),
        ("seeds = [true]", ("'seeds'", [True])),
        ("figures = ['pie']", ("figure", "pie")),
        ("figures = [['rounds']]", ("figure", "['rounds']")),
        ("figures = ['runs']", ("figures", "runs")),
        ("report = 'essay'", ("report", "essay")),
        ("rivals = ['FedAvg', 'Nobody']", ("row in 'rivals'", "Nobody")),
        *((f"rivals = {bad}", ("'rivals'", bad)) for bad in ([], ["FedAvg", "FedAvg"])),
        ("colour = 1", ("key in the file", "colour")),
    ],
)
def test_a_value_of_the_whole_file_is_refused(refused, line, error):
    parts = {"title": HEAD, "run": RUN, "columns": COLUMN.replace("shift-", "shift = 'noise'\nshift-")}
    parts["rows"] = ROW
    del parts[line.split(" ")[0] if line.split(" ")[0] in parts else "title" if not line else "run"]
    assert refused(line, *parts.values()) == error


AT = "[[rows]] number 1, at '0.2'"
PAPER = "'paper' of row 'FedAvg'"
HEADLINE = "'headline' of row 'FedAvg'"
NAN = pytest.approx(float("nan"), nan_ok=True)


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        *(([RUN, f"{key} = 1", COLUMN, ROW], ("key in [run]", key)) for key in ("colour", "seed", "device")),
        ([RUN, COLUMN, "colour = 1", ROW], ("key in [[columns]] number 1", "colour")),
        ([RUN, COLUMN, "paper = {}", ROW], ("key in [[columns]] number 1", "paper")),
        ([RUN, COLUMN, ROW, "value = 1"], ("key in [[rows]] number 1", "value")),
        ([RUN, COLUMN, ROW, GROUP, "colour = 1"], ("key in [[groups]] number 1", "colour")),
        ([RUN, COLUMN, ROW, "at.'0.2'.colour = 1"], (f"key in {AT}", "colour")),
        ([RUN, COLUMN, ROW, "at.few = {}"], ("key in 'at' of row 'FedAvg'", "few")),
        ([RUN, COLUMN, ROW, "at = 3"], ("'at' of [[rows]] number 1", 3)),
        ([RUN, COLUMN, ROW, "at.'0.2' = 3"], (AT, 3)),
        *(
            ([RUN, COLUMN, ROW, f"[[rows]]\n{line}"], ("[[rows]] number 2", None))
            for line in ("method = 'fedda'", "label = 2", "label = ''")
        ),
        ([RUN, COLUMN, ROW, ROW], ("[[rows]]", "FedAvg")),
        ([RUN, COLUMN, ROW, "[[rows]]\nlabel = 'a b'\n[[rows]]\nlabel = 'a/b'"], ("[[rows]]", "a b")),
        ([RUN, COLUMN, "value = 'far'", ROW], ("'value' of [[columns]] number 1", "far")),
        ([RUN, COLUMN, "value = -inf", ROW], ("'value' of [[columns]] number 1", float("-inf"))),
        ([RUN, COLUMN, ROW, "paper = { '0.2' = nan }"], (f"{PAPER}, column '0.2'", NAN)),
        ([RUN, COLUMN, ROW, "metric = 'auroc'"], ("'metric' in [[rows]] number 1", "auroc")),
        ([RUN, COLUMN, ROW, "at.'0.2'.metric = 'auroc'"], (f"'metric' in {AT}", "auroc")),
        ([RUN, COLUMN, ROW, GROUP, "value = true"], ("'value' of [[groups]] number 1", True)),
        ([RUN, COLUMN, ROW, "paper = 5"], (PAPER, 5)),
        ([RUN, COLUMN, ROW, "paper = { '0.3' = 5 }"], (f"key in {PAPER}", "0.3")),
        ([RUN, COLUMN, ROW, "paper = { '0.2' = 'x' }"], (f"{PAPER}, column '0.2'", "x")),
        ([RUN, COLUMN, ROW, "paper = { '0.2' = true }"], (f"{PAPER}, column '0.2'", True)),
        ([RUN, GROUP, COLUMN, ROW, "paper = { '0.2' = 5 }"], (f"key in {PAPER}", "0.2")),
        ([RUN, GROUP, COLUMN, ROW, "paper = { few = 5 }"], (PAPER, 5)),
        *(([RUN, COLUMN, ROW, f'headline = "{bad}"'], (HEADLINE, bad)) for bad in ("best", "average")),
        (['[run]\nshift-options = "std=0.1"', COLUMN, ROW], ("'shift-options' in [run]", "std=0.1")),
        ([RUN, COLUMN, ROW, "at.'0.2'.method-options = []"], (f"'method-options' in {AT}", [])),
        ([RUN, COLUMN, ROW.replace("fedavg", "fedmagic")], ("method", "fedmagic")),
        ([RUN, GROUP.replace("20", "0"), COLUMN, ROW], ("target-samples", "0")),
        ([RUN, COLUMN, ROW, "only-sources = 5"], ("only-sources", 5)),
        ([RUN, COLUMN, ROW, "attackers = 5"], ("attackers", 5)),
        ([RUN, COLUMN, ROW, "attackers = 1\nattack = 'flip-sing'"], ("attack", "flip-sing")),
    ],
)
def test_a_mistake_names_the_file_the_place_and_the_value(refused, parts, error):
    assert refused(HEAD, *parts) == error


def test_cells_whose_files_would_have_the_same_name_are_refused(refused):
    columns = "[[columns]]\nlabel = 'c'\n[[columns]]\nlabel = 'b-c'"
    found = refused(HEAD, RUN, columns, "[[rows]]\nlabel = 'a'", "[[rows]]\nlabel = 'a-b'")
    assert found == ("cells", "a / b-c")


@pytest.mark.parametrize("setting", ["target-samples = 0", "attackers = 5"])
def test_invalid_settings_name_the_cell_too(read, setting):
    with pytest.raises(ConfigError, check=names("cell", "FedAvg, 0.2")):
        read(HEAD, RUN, COLUMN, ROW).config(("", "FedAvg", "0.2"), 0, {"rounds": 0})
    with pytest.raises(ConfigError) as caught:
        read(HEAD, RUN, GROUP.replace("target-samples = 20", setting), COLUMN, ROW)
    cause = caught.value.__cause__
    assert isinstance(cause, ConfigError)
    assert names("cell", "few, FedAvg, 0.2")(cause)


@pytest.mark.parametrize("content", [b'title = "\xff"', b"title = ", b"[[rows]", None])
def test_what_is_no_file_of_an_experiment_is_refused(tmp_path, content):
    path = tmp_path / "made.toml"
    if content:
        path.write_bytes(content)
    for each in (path, tmp_path):
        with pytest.raises(ConfigError, check=names("experiment", each)):
            read_experiment(str(each))
