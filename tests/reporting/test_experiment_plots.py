import warnings
from itertools import pairwise
from typing import Any

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest

from fda_flower.errors import ConfigError
from fda_flower.reporting import FIGURES, CellResult, check_figures, save_figures

ACCURACIES = {
    ("", "FedAvg", "0.2"): (50.0, 54.0),
    ("", "FedAvg", "0.4"): (30.0,),
    ("", "FedGP", "0.4"): (20.0, 30.0),
}
BETAS = {"mnist": 0.2, "usps": 0.4}


@pytest.fixture(autouse=True)
def warnings_are_errors():
    """Unknown numbers cause no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def auto(results, history):
    """A maker of results of a row that estimates β, and one that does not."""

    def make(betas=BETAS, **each):
        cells = [
            CellResult(("", row, column), seed, history(0.4, 0.5, 0.6, betas=betas, estimated=row != "FedGP"))
            for row in ("FedGP", "FedGP_Auto")
            for column in ("0.2", "0.4")
            for seed in (0, 1)
        ]
        return results(**{"cells": cells, "rows": ("FedGP", "FedGP_Auto"), **each})

    return make


def lines_of(axis):
    return {line.get_label(): line for line in axis.get_lines()}


def points_of(line):
    return dict(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True))


def bars_of(axis):
    """The lines and the ends of the error bars by label."""
    return {
        bars.get_label(): (
            points_of(bars.lines[0]),
            [path.vertices[:, 1].tolist() for path in bars.lines[2][0].get_paths()],
        )
        for bars in axis.containers
    }


def solid_of(axis):
    return [bars.lines[0] for bars in axis.containers]


def legend_of(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def titles(figure):
    return [axis.get_title() for axis in figure.axes]


def dots_of(axis):
    """The means and the ends of the bars of a panel of dots, by label."""
    return {
        bars.get_label(): (
            float(bars.lines[0].get_xdata()[0]),
            bars.lines[2][0].get_paths()[0].vertices[:, 0].tolist(),
        )
        for bars in axis.containers
    }


def names_of(axis):
    return [text.get_text() for text in axis.get_yticklabels()]


def labels_of(figure):
    return figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()


NUMBERS = {"0.2": 0.2, "0.4": 0.4}


def test_columns_stand_at_their_values_with_a_deviation_over_seeds(results):
    figure = FIGURES["columns"](results(ACCURACIES, values=NUMBERS, data=["mnist"]))
    (axis,) = figure.axes
    bars = bars_of(axis)
    assert bars["FedAvg"][0] == {0.2: pytest.approx(52.0), 0.4: pytest.approx(30.0)}
    (low, high), alone = bars["FedAvg"][1]
    assert (low, high) == pytest.approx((52 - 8**0.5, 52 + 8**0.5))
    assert alone == pytest.approx([30.0, 30.0])
    assert bars["FedGP"][0] == {0.4: pytest.approx(25.0)}
    assert labels_of(figure) == ("Noise (standard deviation)", "Target test accuracy (%)")
    assert legend_of(figure) == ["FedAvg", "FedGP"]
    assert figure.get_suptitle().replace("\n", " ") == (
        "Accuracy under shift mnist; seeds 0, 1 (fewer in some cells); mean ± std over seeds"
    )


def test_a_line_goes_from_value_to_value_in_whatever_order_a_file_has_its_columns(auto):
    for axis in FIGURES["columns"](auto(values={"0.2": 3.0, "0.4": 1.0})).axes:
        assert [line.get_xdata().tolist() for line in solid_of(axis)] == [[1.0, 3.0]] * 2


def test_categories_have_panels_with_dots_and_intervals_and_no_lines(results):
    figure = FIGURES["columns"](results(ACCURACIES, values={"0.2": 0.2}))
    assert titles(figure) == ["Noise: 0.2", "Noise: 0.4"]
    first, second = figure.axes
    assert names_of(first) == ["FedAvg", "FedGP"]
    mean, ends = dots_of(first)["FedAvg"]
    assert mean == pytest.approx(52)
    assert ends == pytest.approx([52 - 8**0.5, 52 + 8**0.5])
    assert list(dots_of(first)) == ["FedAvg"]
    assert dots_of(second)["FedGP"][0] == pytest.approx(25)
    for axis in figure.axes:
        assert all(np.size(bars.lines[0].get_xdata()) == 1 for bars in list[Any](axis.containers))
    assert figure.legends == []


@pytest.mark.parametrize("values", [NUMBERS, {}], ids=["numbers", "categories"])
def test_the_papers_values_are_hollow_in_the_rows_colour_and_not_joined(results, values):
    paper = {("", "FedGP", "0.2"): 71.0, ("", "FedGP", "0.4"): 60.0, ("", "FedAvg", "0.2"): 50.0}
    figure = FIGURES["columns"](results(ACCURACIES, paper=paper, values=values))
    hollow = [
        line for axis in figure.axes for line in axis.get_lines() if line.get_markerfacecolor() == "none"
    ]
    assert {line.get_linestyle() for line in hollow} == {"None"}
    places = 1 if values else 0
    found = sorted(float(v) for line in hollow for v in np.asarray(line.get_data()[places]))
    assert found == [50.0, 60.0, 71.0]
    look = {
        bars.get_label(): style_of(bars.lines[0])
        for axis in figure.axes
        for bars in list[Any](axis.containers)
    }
    assert {style_of(line) for line in hollow} == set(look.values())
    assert legend_of(figure)[-1] == "in the paper"


@pytest.mark.parametrize("values", [NUMBERS, {}], ids=["numbers", "categories"])
def test_neither_rows_that_were_not_run_nor_their_paper_are_shown(results, values):
    paper = {("", "FADA", "0.2"): 71.0}
    made = results(ACCURACIES, paper=paper, values=values, rows=("FedAvg", "FADA", "FedGP"))
    figure = FIGURES["columns"](made)
    assert not [x for axis in figure.axes for x in axis.get_lines() if x.get_markerfacecolor() == "none"]
    assert "FADA" not in [name for axis in figure.axes for name in names_of(axis)]
    assert not figure.legends or legend_of(figure) == ["FedAvg", "FedGP"]


def test_columns_have_a_panel_for_each_group_with_a_run(results):
    accuracies = {
        ("50", "FedGP", "0.2"): (20.0,),
        ("50", "FedGP", "0.4"): (20.0,),
        ("100", "FedAvg", "0.4"): (20.0,),
    }
    groups = {"groups": ("50", "75", "100"), "group_axis": "Samples (number)"}
    figure = FIGURES["columns"](results(accuracies, values=NUMBERS, **groups))
    assert titles(figure) == ["Samples: 50", "Samples: 100"]
    assert [list(bars_of(axis)) for axis in figure.axes] == [["FedGP"], ["FedAvg"]]
    figure = FIGURES["columns"](results(accuracies, **groups))
    places = [f"Samples: {group}\nNoise: {column}" for group in ("50", "100") for column in ("0.2", "0.4")]
    assert titles(figure) == places


def test_fifteen_rows_of_categories_do_not_overlap(results):
    rows = [f"FedRep, hidden layer {i}" for i in range(15)]
    columns = ("cleveland", "hungary", "switzerland", "va")
    scores = {("", row, column): (50.0, 52.0) for row in rows for column in columns}
    figure = FIGURES["columns"](results(scores, rows=rows, columns=columns))
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].get_yticklabels()]
    assert not any(one.overlaps(other) for one, other in pairwise(boxes))
    assert all(axis.get_window_extent().width > 100 for axis in figure.axes)


def test_rounds_have_a_panel_for_each_column_with_a_band_for_each_row(auto):
    figure = FIGURES["rounds"](auto())
    assert titles(figure) == ["Noise: 0.2", "Noise: 0.4"]
    for axis in figure.axes:
        lines = lines_of(axis)
        assert list(lines) == ["FedGP", "FedGP_Auto"]
        assert points_of(lines["FedGP"]) == pytest.approx({1: 40.0, 2: 50.0, 3: 60.0})
        assert len(axis.collections) == 2
    assert labels_of(figure) == ("Round", "Target test accuracy (%)")
    assert legend_of(figure) == ["FedGP", "FedGP_Auto"]


def test_a_row_with_few_evaluations_has_a_marker_on_each(results, history):
    """Of the third of three rows matplotlib would else leave out the first markers, here all of them."""
    places = [("", row, "0.2") for row in ("FedAvg", "FedGP", "Mixture")]
    rounds: list[list[float | None]] = [[0.5] * 30, [0.6] * 30, [*[None] * 29, 0.7]]
    cells = [CellResult(place, 0, history(*each)) for place, each in zip(places, rounds, strict=True)]
    figure = FIGURES["rounds"](results(cells=cells, rows=("FedAvg", "FedGP", "Mixture")))
    lines = lines_of(figure.axes[0])
    assert points_of(lines["Mixture"]) == {30: pytest.approx(70.0)}
    assert [lines[row].get_markevery() for row in lines] == [(0, 6), (2, 6), (0, 1)]


def test_groups_and_columns_without_cells_have_no_panel(results):
    made = results({("50", "FedGP", "0.2"): (20.0,)}, groups=("50", "100"), group_axis="Samples")
    assert titles(FIGURES["rounds"](made)) == ["Samples: 50\nNoise: 0.2"]


def test_the_end_of_the_warmup_rounds_is_marked(results, history):
    records = history(0.1, 0.2, 0.3, 0.4)
    for record in records[:2]:
        record["warmup"] = True
    cells = [CellResult(("", "FedGP", "0.2"), seed, records) for seed in (0, 1)]
    (axis,) = FIGURES["rounds"](results(cells=cells)).axes
    marks = [line for line in axis.get_lines() if line.get_label() == "end of warm-up rounds"]
    assert [np.asarray(line.get_xdata()).tolist() for line in marks] == [[2.5, 2.5]]


def test_betas_have_a_panel_for_each_column_of_a_row_that_estimates_them(auto):
    figure = FIGURES["betas"](auto())
    assert titles(figure) == ["Noise: 0.2\nFedGP_Auto", "Noise: 0.4\nFedGP_Auto"]
    for axis in figure.axes:
        assert points_of(lines_of(axis)["usps"]) == pytest.approx({1: 0.4, 2: 0.4, 3: 0.4})
        assert axis.get_ylim()[0] == 0
    assert legend_of(figure) == ["mnist", "usps"]


def test_betas_of_a_row_share_a_line_and_its_scale(results, history):
    beta = {("FedDA_Auto", "0.2"): 0.02, ("FedDA_Auto", "0.4"): 0.04, ("FedGP_Auto", "0.4"): 0.8}
    cells = [
        CellResult(("", row, column), 0, history(0.5, 0.5, betas={"usps": value}))
        for (row, column), value in beta.items()
    ]
    figure = FIGURES["betas"](results(cells=cells, rows=("FedDA_Auto", "FedGP_Auto")))
    first, second, empty, last = figure.axes
    assert titles(figure)[:2] == ["Noise: 0.2\nFedDA_Auto", "Noise: 0.4\nFedDA_Auto"]
    assert first.get_ylim() == second.get_ylim()
    assert list(first.get_ylim()) == pytest.approx([0, 0.041], rel=0.05)
    assert last.get_ylim()[1] > 0.8
    assert not empty.get_lines()
    assert [axis.get_ylabel() != "" for axis in figure.axes] == [True, False, True, False]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_drawn_of_nothing(results, history, name):
    FIGURES[name](results()).canvas.draw()
    empty = [
        CellResult(("", "FedGP", "0.2"), 0, []),
        CellResult(("", "FedGP", "0.4"), 0, history(None, None)),
    ]
    FIGURES[name](results(cells=empty)).canvas.draw()


@pytest.mark.parametrize("name", FIGURES)
def test_text_is_legible_in_print_and_within_the_figure(auto, name):
    long = "Share of the samples of the target that have a label, of all that it has (percent)"
    made = auto(groups=("", "5%", "10%"), group_axis=long, axis=long, columns=("0.2", "0.4", "a long label"))
    figure = FIGURES[name](made)
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    assert figure.get_figwidth() in (3.5, 7.0)
    ticks = [text for axis in figure.axes for text in (*axis.get_xticklabels(), *axis.get_yticklabels())]
    texts = [*figure.texts, *(axis.title for axis in figure.axes)]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    assert all(float(text.get_fontsize()) >= 8 for text in (*ticks, *texts))
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    for box in (*boxes, *(axis.get_tightbbox() for axis in figure.axes)):
        assert (box.x0 >= -1, box.x1 <= width + 1, box.y0 >= -1, box.y1 <= height + 1) == (True,) * 4, box


def test_the_legend_does_not_cover_panels_or_labels(auto):
    figure = FIGURES["rounds"](auto())
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert not any(
        box is None or legend.overlaps(box) for box in (axis.get_tightbbox() for axis in figure.axes)
    )
    assert not any(legend.overlaps(text.get_window_extent()) for text in figure.texts)


def test_rows_differ_in_marker_and_colour_and_keep_them_where_others_are_missing(results):
    rows = ("A", "B", "C", "D", "E", "F", "G", "H", "I")
    whole = {("", row, "0.2"): (float(i),) for i, row in enumerate(rows)}
    (axis,) = FIGURES["columns"](results(whole, rows=rows, columns=["0.2"])).axes
    styles = dict(zip(rows, map(style_of, solid_of(axis)), strict=True))
    assert len(set(styles.values())) == len({marker for marker, _ in styles.values()}) == len(rows)
    made = results({("", "C", "0.2"): (1.0,)}, rows=rows, columns=["0.2"])
    (axis,) = FIGURES["columns"](made).axes
    assert style_of(solid_of(axis)[0]) == styles["C"]


def style_of(line):
    return line.get_marker(), matplotlib.colors.to_hex(line.get_color())


def test_check_figures_names_the_valid_ones():
    check_figures(FIGURES)
    valid = "best-rule, betas, columns, lost, regret, rounds"
    with pytest.raises(ConfigError, match=f"unknown figure 'pie': choose one of {valid}"):
        check_figures(["columns", "pie"])


def test_save_figures_writes_each_as_png(auto, tmp_path):
    paths = save_figures(auto(figures=("columns", "betas")), tmp_path / "new" / "folder")
    names = ["shift-columns.png", "shift-betas.png"]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(names)
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
    pixels = matplotlib.image.imread(paths[0])
    assert pixels.shape[1] == 7 * 200
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 50


def test_save_figures_writes_none_if_one_is_unknown(auto, tmp_path):
    with pytest.raises(ConfigError, match="unknown figure 'pie'"):
        save_figures(auto(figures=("columns", "pie")), tmp_path)
    assert not list(tmp_path.iterdir())
