"""The figures of runs and of experiments: what is drawn where, and that it can be read."""

import itertools
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.reporting import (
    FIGURES,
    check_figures,
    plot_runs,
    plot_sites,
    save_figure,
    save_figures,
)
from fda_flower.reporting.figures import COLORS, style

BETAS = {"source-1": 0.2, "source-2": 0.6}
NUMBERS = {"0.2": 0.2, "0.4": 0.4}
ACCURACIES = {
    ("", "FedAvg", "0.2"): (50.0, 54.0),
    ("", "FedAvg", "0.4"): (30.0,),
    ("", "FedGP", "0.4"): (20.0, 30.0),
}

pytestmark = pytest.mark.filterwarnings("error")
"""Unknown numbers cause no warning."""


@pytest.fixture
def runs(history):
    """Two plain methods and two that estimate β, with two seeds each."""
    return {
        "FedAvg": [history(0.1, 0.2, 0.3), history(0.3, 0.4, 0.5)],
        "FedGP": [history(0.2, 0.2, 0.2, betas=BETAS, estimated=False)] * 2,
        "FedDA_Auto": [history(0.5, 0.6, 0.7, betas=BETAS), history(0.5, 0.6, 0.7, betas={"source-1": 0.4})],
        "FedGP_Auto": [history(0.6, 0.7, 0.8, betas=BETAS)] * 2,
    }


@pytest.fixture
def one(results, runs_of):
    """A maker of a comparison's picture from the histories of each row, one a seed."""

    def draw(histories, **each):
        runs = {("", row, ""): runs_of(row, *known) for row, known in histories.items()}
        shown = {"columns": [""], "title": "", "rows": [*histories], "runs": runs}
        return plot_runs(results(**shown, **each))

    return draw


@pytest.fixture
def auto(results, history, runs_of):
    """A maker of results of a row that estimates β, and one that does not."""

    def make(**each):
        rows = ("FedGP", "FedGP_Auto")
        runs = {
            ("", row, column): runs_of(
                row, *(history(0.4, 0.5, 0.6, betas=BETAS, estimated=row != "FedGP") for _ in range(2))
            )
            for row in rows
            for column in ("0.2", "0.4")
        }
        return results(**{"runs": runs, "rows": rows, **each})

    return make


def lines_of(axis):
    return {line.get_label(): points_of(line) for line in axis.get_lines()}


def points_of(line):
    return dict(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True))


def bars_of(axis, i=1):
    """The points of error bars, and the ends of each bar, by label; `i` is 0 for bars along x."""
    return {
        bars.get_label(): (
            points_of(bars.lines[0]),
            [path.vertices[:, i].tolist() for path in bars.lines[2][0].get_paths()],
        )
        for bars in axis.containers
    }


def look_of(line):
    return line.get_color(), line.get_marker()


def dots_of(axis):
    """The looks of the dots of error bars, by label."""
    return {bars.get_label(): look_of(bars.lines[0]) for bars in axis.containers}


def hollow_of(figure):
    lines = [line for axis in figure.axes for line in axis.get_lines()]
    return [line for line in lines if line.get_markerfacecolor() == "none"]


def labels_of(axis):
    return [text.get_text() for text in axis.get_yticklabels()]


def legend_of(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def titles(figure):
    return [axis.get_title() for axis in figure.axes]


def heights_of(axis):
    """The heights of the corners of an axis's only band."""
    (band,) = axis.collections
    return band.get_paths()[0].vertices[:, 1]


# Looks


def test_curves_differ_in_colour_or_marker_and_neighbours_in_all():
    looks = [style(i) for i in range(143)]
    assert len({look.color for look in looks[:13]}) == 13
    assert len({(look.color, look.marker) for look in looks}) == 143
    for one, other in itertools.pairwise(looks):
        assert not set(vars(one).values()) & set(vars(other).values())


def test_no_colour_vanishes_on_white_or_on_dark():
    for color in COLORS:
        red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
        assert 0.2 < 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.75, color


# Runs


def test_a_line_is_the_mean_over_seeds_in_percent_and_its_band_one_sample_deviation(one, runs):
    figure = one({"FedAvg": runs["FedAvg"]}, data=["digits"])
    (axis,) = figure.axes
    assert (titles(figure), axis.get_ylabel()) == (["FedAvg"], "Target test accuracy (%)")
    assert figure.get_suptitle() == "digits; seeds 0, 1; mean ± std over seeds"
    assert lines_of(axis) == {"FedAvg": pytest.approx({1: 20, 2: 30, 3: 40})}
    # As in the tables: two seeds that differ by 20 deviate by 20 / √2.
    assert [heights_of(axis).min(), heights_of(axis).max()] == pytest.approx([20 - 200**0.5, 40 + 200**0.5])


def test_seeds_share_a_line_where_they_are_known(one, history):
    (axis,) = one({"FedAvg": [history(0.1, 0.2, None, 0.3), history(0.3)]}).axes
    assert lines_of(axis)["FedAvg"] == pytest.approx({1: 20, 2: 20, 4: 30})
    assert np.isfinite(heights_of(axis)).all()
    (axis,) = one({"FedAvg": [history(0.1, 0.2)]}).axes
    assert not axis.collections, "one seed has no band"


def test_a_line_is_broken_where_many_rounds_are_unknown(one, history):
    (axis,) = one({"Mixture": [history(0.1, 0.2, *[None] * 20, 0.9)]}).axes
    points = lines_of(axis)["Mixture"]
    assert list(points) == [1, 2, 12.5, 23]
    assert np.isnan(points[12.5])


def test_several_methods_are_named_beside_their_last_rounds_the_best_first(one, runs, history):
    shown = {label: runs[label] for label in ("FedGP", "FedAvg")} | {"None": [history(None)]}
    curves, last = one(shown).axes
    assert list(lines_of(curves)) == ["FedGP", "FedAvg", "None"]
    assert labels_of(last) == ["FedAvg", "FedGP", "None"]
    assert {label: [*points] for label, (points, _) in bars_of(last, 0).items()} == {
        "FedAvg": pytest.approx([30]),
        "FedGP": pytest.approx([20]),
    }


def test_each_method_that_estimates_beta_has_a_panel_of_its_own(one, runs):
    figure = one(runs)
    curves, _, *betas = figure.axes
    assert titles(figure)[2:] == ["FedDA_Auto", "FedGP_Auto"]
    assert [axis.get_ylim()[0] for axis in betas] == [0, 0]
    # The second seed knows the first source alone.
    assert lines_of(betas[0])["source-1"] == pytest.approx(dict.fromkeys((1, 2, 3), 0.3))
    assert lines_of(betas[0])["source-2"] == pytest.approx(dict.fromkeys((1, 2, 3), 0.6))
    assert legend_of(figure.subfigs[1]) == ["source-1", "source-2"]
    for axis in (curves, *betas):
        colors = [line.get_color() for line in axis.get_lines()]
        assert len(set(colors)) == len(colors)
    many = one({f"Auto {i}": runs["FedDA_Auto"] for i in range(5)})
    assert titles(many)[2:] == [f"Auto {i}" for i in range(5)]


def test_a_beta_or_joint_weight_of_any_round_is_drawn(one, record):
    history = [
        record(1, 0.1, betas={"source-1": 0.5}, estimated=False),
        record(2, 0.2, held="no usable reply of the target"),
        record(3, 0.3, betas={"source-1": 0.7}),
    ]
    entry = history[0]["sources"]["source-1"]
    entry["weight"] = entry.pop("beta")
    _, axis = one({"FedGP_Auto": [history]}).axes
    assert lines_of(axis)["source-1"] == {1: 0.5, 3: 0.7}


def test_of_many_sources_a_panel_has_the_mean_and_the_range_of_beta(one, record):
    betas = {f"source-{i}": i / 100 for i in range(100)}
    figure = one({"FedGP_Auto": [[record(number, 0.5, betas=betas) for number in (1, 2)]]})
    _, axis = figure.axes
    assert lines_of(axis) == {"mean of 100 sources": pytest.approx({1: 0.495, 2: 0.495})}
    assert (heights_of(axis).min(), heights_of(axis).max()) == pytest.approx((0, 0.99))
    assert legend_of(figure.subfigs[1]) == ["mean of 100 sources", "lowest to highest"]
    figure.draw_without_rendering()  # without the warning of a layout that has no room


def test_a_mixture_that_is_evaluated_once_is_drawn_by_its_members(one, record):
    members = {"sources": {"weight": 0.2}, "head": {"weight": 0.8}, "prior": {"left-out": "no label"}}
    last = record(3, 0.734) | {"mixture": {"members": members}}
    (axis,) = one({"Mixture": [[record(1), record(2), last]]}).axes
    assert axis.get_title() == "Mixture: Target test accuracy (%) 73.4"
    (bars,) = axis.containers
    assert [bar.get_width() for bar in bars] == [0.2, 0.8]
    assert labels_of(axis) == ["sources", "head"]
    (axis,) = one({"Mixture": [[record(1, 0.7), record(2), last]]}).axes
    assert not axis.patches, "two evaluations are a curve"


def test_thirty_methods_can_be_told_apart_without_colour_or_with_it(one, history):
    runs = {f"method {i}": [history(*[i / 40] * 30)] for i in range(30)}
    figure = one(runs)
    curves, last = figure.axes
    assert len(set(map(look_of, curves.get_lines()))) == 30
    assert len({(line.get_marker(), line.get_linestyle()) for line in curves.get_lines()}) == 30
    dots = dots_of(last)
    assert [dots[name] for name in runs] == [look_of(line) for line in curves.get_lines()]
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in last.get_yticklabels()]
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))
    assert not curves.collections, "so many bands would hide the curves"


@pytest.mark.parametrize("rounds", [2, 3, 30, 100])
def test_rounds_are_counted_in_whole_numbers_up_to_the_last(one, history, rounds):
    figure = one({"FedAvg": [history(*np.linspace(0.1, 0.9, rounds))]})
    (axis,) = figure.axes
    figure.draw_without_rendering()
    assert all(float(tick).is_integer() for tick in axis.get_xticks())
    assert rounds in axis.get_xticks()


# Files


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_save_figure_writes_the_format_of_the_ending_and_leaves_no_part(one, runs, tmp_path, ending, start):
    path = tmp_path / f"picture.{ending}"
    path.write_bytes(b"an older picture")
    save_figure(path, one(runs))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes().startswith(start)


def test_save_figures_writes_each_as_png(auto, tmp_path):
    paths = save_figures(auto(figures=("columns", "betas")), tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["shift-columns.png", "shift-betas.png"]
    assert sorted((tmp_path / "new" / "folder").iterdir()) == sorted(paths)
    for path in paths:
        pixels = matplotlib.image.imread(path)
        assert pixels.shape[1] == 7 * 200
        assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 50


def test_an_unknown_figure_is_named_and_none_is_written(auto, tmp_path):
    check_figures(FIGURES)
    with pytest.raises(ConfigError, check=names("figure", "pie", remedy="rounds")):
        save_figures(auto(figures=("columns", "pie")), tmp_path)
    assert not list(tmp_path.iterdir())


# Columns


def test_columns_stand_at_their_values_with_a_deviation_over_seeds(results):
    made = results(ACCURACIES, values=NUMBERS, data=["mnist"], columns=("0.4", "0.2"))
    figure = FIGURES["columns"](made)
    (axis,) = figure.axes
    bars = bars_of(axis)
    assert bars["FedAvg"][0] == pytest.approx({0.2: 52.0, 0.4: 30.0})
    assert bars["FedAvg"][1] == [pytest.approx([52 - 8**0.5, 52 + 8**0.5]), pytest.approx([30.0, 30.0])]
    assert bars["FedGP"][0] == pytest.approx({0.4: 25.0})
    assert [*bars["FedAvg"][0]] == [0.2, 0.4], "a line goes from value to value, whatever the columns' order"
    assert axis.get_xlabel() == "Noise (standard deviation)"
    assert legend_of(figure) == ["FedAvg", "FedGP"]
    assert figure.get_suptitle().replace("\n", " ") == (
        "Accuracy under shift mnist; seeds 0, 1 (fewer in some cells); mean ± std over seeds"
    )


def test_categories_have_panels_with_dots_and_intervals_and_no_lines(results):
    figure = FIGURES["columns"](results(ACCURACIES, values={"0.2": 0.2}))
    assert titles(figure) == ["Noise: 0.2", "Noise: 0.4"]
    first, second = (bars_of(axis, 0) for axis in figure.axes)
    assert labels_of(figure.axes[0]) == ["FedAvg", "FedGP"]
    ((mean, (ends,)),) = first.values()
    assert [*mean, *ends] == pytest.approx([52, 52 - 8**0.5, 52 + 8**0.5])
    assert [[*points] for points, _ in second.values()] == [pytest.approx([30]), pytest.approx([25])]
    assert not figure.legends


@pytest.mark.parametrize("values", [NUMBERS, {}], ids=["numbers", "categories"])
def test_the_papers_values_are_hollow_in_the_rows_colour_and_not_joined(results, values):
    paper = {("", "FedGP", "0.2"): 71.0, ("", "FedGP", "0.4"): 60.0, ("", "FedAvg", "0.2"): 50.0}
    figure = FIGURES["columns"](results(ACCURACIES, paper=paper, values=values))
    hollow = hollow_of(figure)
    assert {line.get_linestyle() for line in hollow} == {"None"}
    found = sorted(float(v) for line in hollow for v in line.get_data()[bool(values)])
    assert found == [50.0, 60.0, 71.0]
    solid = {look for axis in figure.axes for look in dots_of(axis).values()}
    assert {look_of(line) for line in hollow} == solid
    assert legend_of(figure)[-1] == "in the paper"
    made = results(ACCURACIES, paper={("", "FADA", "0.2"): 71.0}, values=values, rows=("FedAvg", "FADA"))
    figure = FIGURES["columns"](made)
    assert not hollow_of(figure), "neither rows that were not run nor their paper's values are shown"
    assert "FADA" not in {*legend_of(figure), *(name for axis in figure.axes for name in labels_of(axis))}


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (NUMBERS, ["Samples: 50", "Samples: 100"]),
        ({}, [f"Samples: {group}\nNoise: {column}" for group in (50, 100) for column in ("0.2", "0.4")]),
    ],
    ids=["numbers", "categories"],
)
def test_each_group_with_a_run_has_panels(results, values, shown):
    places = [("50", "FedGP", "0.2"), ("50", "FedGP", "0.4"), ("100", "FedAvg", "0.4")]
    groups = {"groups": ("50", "75", "100"), "group_axis": "Samples (number)"}
    made = results(dict.fromkeys(places, (20.0,)), values=values, **groups)
    assert titles(FIGURES["columns"](made)) == shown
    assert titles(FIGURES["rounds"](made)) == [
        f"Samples: {group}\nNoise: {column}" for group, _, column in places
    ]


def test_a_row_keeps_its_look_where_others_are_missing(results):
    scores = {("", "C", column): (1.0,) for column in ("0.2", "0.4")}
    made = results(scores, rows=tuple("ABCD"), values={"0.2": 0.2, "0.4": 0.4})
    (axis,) = FIGURES["columns"](made).axes
    assert dots_of(axis) == {"C": (style(2).color, style(2).marker)}


def test_rows_that_the_axis_names_have_one_look(results):
    made = results({("", row, "0.2"): (1.0,) for row in "ABCD"}, rows=tuple("ABCD"), columns=["0.2"])
    (axis,) = FIGURES["columns"](made).axes
    assert set(dots_of(axis).values()) == {(style(0).color, style(0).marker)}


def test_fifteen_rows_of_categories_do_not_overlap(results):
    rows = [f"FedRep, hidden layer {i}" for i in range(15)]
    columns = ("cleveland", "hungary", "switzerland", "va")
    scores = {("", row, column): (50.0, 52.0) for row in rows for column in columns}
    figure = FIGURES["columns"](results(scores, rows=rows, columns=columns))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].get_yticklabels()]
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))
    assert all(axis.get_window_extent().width > 100 for axis in figure.axes)


# Rounds and weights


def test_rounds_have_a_panel_for_each_column_with_a_band_for_each_row(auto):
    figure = FIGURES["rounds"](auto())
    assert titles(figure) == ["Noise: 0.2", "Noise: 0.4"]
    for axis in figure.axes:
        assert [*lines_of(axis)] == ["FedGP", "FedGP_Auto"]
        assert lines_of(axis)["FedGP"] == pytest.approx({1: 40.0, 2: 50.0, 3: 60.0})
        assert len(axis.collections) == 2
    assert legend_of(figure) == ["FedGP", "FedGP_Auto"]


def test_a_row_with_few_evaluations_has_a_marker_on_each(results, history, runs_of):
    """Of the third of three rows matplotlib would else leave out the first markers, here all of them."""
    rounds: dict[str, list[Any]] = {"FedAvg": [0.5] * 30, "FedGP": [0.6] * 30, "Mixture": [*[None] * 29, 0.7]}
    runs = {("", row, "0.2"): runs_of(row, history(*each)) for row, each in rounds.items()}
    (axis,) = FIGURES["rounds"](results(runs=runs, rows=[*rounds])).axes
    assert bars_of(axis)["Mixture"][0] == pytest.approx({30: 70.0})
    assert [line.get_markevery() for line in axis.get_lines()[:2]] == [(0, 6), (2, 6)]


def test_the_end_of_the_warmup_rounds_is_marked(results, history, runs_of):
    records = history(0.1, 0.2, 0.3, 0.4)
    for record in records[:2]:
        record["warmup"] = True
    runs = {("", "FedGP", "0.2"): runs_of("FedGP", records, records)}
    (axis,) = FIGURES["rounds"](results(runs=runs)).axes
    assert [*lines_of(axis)["end of warm-up rounds"]] == [2.5]


def test_betas_of_a_row_share_a_line_and_its_scale(results, history, runs_of):
    beta = {("FedDA_Auto", "0.2"): 0.02, ("FedDA_Auto", "0.4"): 0.04, ("FedGP_Auto", "0.4"): 0.8}
    runs = {
        ("", row, column): runs_of(row, history(0.5, 0.5, betas={"usps": value}))
        for (row, column), value in beta.items()
    }
    runs["", "FedGP", "0.4"] = runs_of("FedGP", history(0.5, betas={"usps": 0.5}, estimated=False))
    figure = FIGURES["betas"](results(runs=runs, rows=("FedDA_Auto", "FedGP", "FedGP_Auto")))
    first, second, empty, last = figure.axes
    assert titles(figure)[:2] == ["Noise: 0.2\nFedDA_Auto", "Noise: 0.4\nFedDA_Auto"]
    assert lines_of(first)["usps"] == {1: 0.02, 2: 0.02}
    assert first.get_ylim() == second.get_ylim()
    assert list(first.get_ylim()) == pytest.approx([0, 0.041], rel=0.05)
    assert last.get_ylim()[1] > 0.8
    assert not empty.get_lines()
    assert legend_of(figure) == ["usps"]


# All figures


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_drawn_of_nothing(results, history, runs_of, name):
    empty = {
        ("", "FedGP", "0.2"): runs_of("FedGP", []),
        ("", "FedGP", "0.4"): runs_of("FedGP", history(None, None)),
    }
    for made in (results(), results(runs=empty)):
        FIGURES[name](made).draw_without_rendering()


@pytest.mark.parametrize("shown", [*FIGURES, 1, 2, 4])
def test_text_is_legible_in_print_and_within_the_figure(auto, one, runs, shown):
    long = "Share of the samples of the target that have a label, of all that it has (percent)"
    made = auto(groups=("", "5%", "10%"), group_axis=long, axis=long, columns=("0.2", "0.4", "a long label"))
    some = dict([*runs.items()][-shown:]) if isinstance(shown, int) else {}
    figure = one(some, data=[long]) if some else FIGURES[shown](made)
    figure.draw_without_rendering()
    width, height = figure.canvas.get_width_height()
    assert figure.get_figwidth() in (3.5, 7.0)
    all_legends = [legend for part in (figure, *figure.subfigs) for legend in part.legends]
    texts = [*figure.texts, *(text for legend in all_legends for text in legend.get_texts())]
    for axis in figure.axes:
        texts += [axis.title, axis.xaxis.label, axis.yaxis.label]
        texts += [*axis.get_xticklabels(), *axis.get_yticklabels()]
    assert all(float(text.get_fontsize()) >= 8 for text in texts)
    legends: list[Any] = [legend.get_window_extent() for legend in all_legends]
    panels: list[Any] = [axis.get_tightbbox() for axis in figure.axes]
    for box in (*legends, *panels, *(text.get_window_extent() for text in figure.texts)):
        assert (box.x0 >= -1, box.x1 <= width + 1, box.y0 >= -1, box.y1 <= height + 1) == (True,) * 4, box
    assert not any(one.overlaps(other) for one, other in itertools.product(legends, panels))


# Better than what?


@pytest.mark.parametrize("name", ["columns", "rounds"])
@pytest.mark.parametrize("values", [NUMBERS, {}], ids=["numbers", "categories"])
def test_the_most_frequent_class_is_a_dashed_line_in_each_panel(results, uneven, name, values):
    figure = FIGURES[name](uneven(results(ACCURACIES, values=values)))
    for axis in figure.axes:
        (points,) = [each for label, each in lines_of(axis).items() if "most frequent class" in str(label)]
        assert 75.0 in {*points, *points.values()}
        assert "--" in [line.get_linestyle() for line in axis.get_lines()]


def test_the_pictures_of_runs_say_how_many_test_samples_the_line_is_of(one, results, uneven):
    (run, *_) = uneven(results(ACCURACIES)).all_runs
    for runs in ({"A": [run.history]}, {"A": [run.history], "B": [run.history]}):
        (key,) = [text.get_text() for text in one(runs).subfigs[0].legends[0].get_texts()]
        assert key == "most frequent class, 40 test samples"


# Sites


def test_sites_that_tell_nothing_have_a_figure_that_says_so():
    figure = plot_sites([{"sites": {"a": {"labels": 3}}}])
    assert (figure.axes, [text.get_text() for text in figure.texts]) == ([], ["No site reported a figure."])
