"""The picture of a board."""

import warnings
from itertools import pairwise

import numpy as np
import pytest

from fda_flower.reporting import save_figures
from fda_flower.reporting.regret import plot_regret

SCORES = {
    ("", "FedAvg", "0.2"): (50.0,),
    ("", "FedGP", "0.2"): (80.0,),
    ("", "FedAvg", "0.4"): (51.0,),
    ("", "FedGP", "0.4"): (50.0,),
}


@pytest.fixture(autouse=True)
def warnings_are_errors():
    """Unknown numbers cause no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def points_of(axis, label):
    (line,) = (line for line in axis.get_lines() if line.get_label() == label)
    return sorted(zip(np.round(line.get_xdata(), 9).tolist(), line.get_ydata(), strict=True))


def words_of(axis):
    return [text.get_text() for text in axis.texts]


def rows_of(axis):
    return [text.get_text() for text in axis.get_yticklabels()]


def test_every_cell_mean_and_worst_is_a_point_and_the_best_row_is_first(results):
    (axis,) = plot_regret(results(SCORES)).axes
    assert rows_of(axis) == ["FedGP", "FedAvg"]
    assert points_of(axis, "a cell") == [(-30, 1), (-1, 0), (1, 1), (30, 0)]
    assert points_of(axis, "mean") == [(-14.5, 1), (14.5, 0)]
    assert points_of(axis, "worst") == [(-30, 1), (-1, 0)]
    assert words_of(axis) == ["+14.5, worst -1.0 (0.4)", "-14.5, worst -30.0 (0.2)"]
    low, high = axis.get_xlim()
    assert low < -30 < 30 < high


def test_ensembles_and_missing_cells_are_marked(results):
    scores = {**SCORES, ("", "Mix", "0.2"): (81.0,)}
    made = results(scores, rows=("FedAvg", "FedGP", "Mix"), rivals=("FedAvg", "FedGP"), ensembles={"Mix"})
    figure = plot_regret(made)
    (axis,) = figure.axes
    assert rows_of(axis) == ["FedGP", "Mix †", "FedAvg"]
    assert words_of(axis)[1] == "+1.0, worst +1.0 (0.2), 1 of 2 cells"
    assert "† an ensemble" in figure.axes[-1].get_xlabel().replace("\n", " ")


def test_centralised_references_are_marked(results):
    made = results({**SCORES}, rivals=("FedAvg", "FedGP"), centralised={"FedAvg"})
    figure = plot_regret(made)
    assert "FedAvg ‡" in rows_of(figure.axes[0])
    assert "‡ centralised" in figure.axes[-1].get_xlabel().replace("\n", " ")
    assert "†" not in figure.axes[-1].get_xlabel().replace("\n", " ")


def test_r2_has_a_panel_of_its_own(results):
    figure = plot_regret(results(SCORES, metrics={("", "0.4"): "r2"}))
    assert [axis.get_title("left") for axis in figure.axes] == ["Accuracy", "R²"]
    assert [rows_of(axis)[0] for axis in figure.axes] == ["FedGP", "FedAvg"]


def test_rows_without_a_regret_are_left_out(results):
    made = results(SCORES, rows=("FedAvg", "FedGP", "Absent"), rivals=("FedAvg", "FedGP"))
    assert rows_of(plot_regret(made).axes[0]) == ["FedGP", "FedAvg"]


def test_a_board_of_many_long_names_fits_the_page(results):
    rows = [f"FedDA_Joint, start, {number} epochs" for number in range(20)]
    columns = [f"Office-Caltech10, webcam and others, {number}" for number in range(18)]
    rng = np.random.default_rng(0)
    scores = {("", row, column): tuple(rng.uniform(0, 99, 2)) for row in rows for column in columns}
    figure = plot_regret(results(scores, rows=rows, columns=columns))
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    (axis,) = figure.axes
    boxes = [text.get_window_extent() for text in axis.texts]
    assert all(box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1 for box in boxes)
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))
    assert axis.get_window_extent().width > 0.25 * width


def test_the_picture_is_written(results, tmp_path):
    paths = save_figures(results(SCORES, figures=("regret",)), tmp_path)
    assert [path.name for path in paths] == ["shift-regret.png"]
    assert all(path.stat().st_size > 5000 for path in paths)
