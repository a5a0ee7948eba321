import io
import itertools
import warnings
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from fda_flower.reporting import plot_runs, save_figure

BETAS = {"source-1": 0.2, "source-2": 0.6}


@pytest.fixture(autouse=True)
def warnings_are_errors():
    """A figure of unknown rounds causes no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def runs(history):
    """Two plain methods and two that estimate β, with two seeds each."""
    return {
        "FedAvg": [history(0.1, 0.2, 0.3), history(0.3, 0.4, 0.5)],
        "FedGP": [history(0.2, 0.2, 0.2, betas=BETAS, estimated=False)] * 2,
        "FedDA_Auto": [history(0.5, 0.6, 0.7, betas=BETAS), history(0.5, 0.6, 0.7, betas={"source-1": 0.4})],
        "FedGP_Auto": [history(0.6, 0.7, 0.8, betas=BETAS)] * 2,
    }


def lines_of(axis):
    return {line.get_label(): line for line in axis.get_lines()}


def bars_of(axis) -> list[Any]:
    return list(axis.containers)


def names_beside(axis):
    """The methods of the panel of the last rounds, from top to bottom."""
    return [text.get_text() for text in axis.get_yticklabels()]


def test_one_method_is_named_above_its_panel(runs):
    figure = plot_runs({"FedAvg": runs["FedAvg"]}, about="digits; seeds 0, 1")
    (axis,) = figure.axes
    assert axis.get_title() == "FedAvg"
    assert axis.get_xlabel() == "Round"
    assert axis.get_ylabel() == "Target test accuracy (%)"
    assert figure.get_suptitle() == "digits; seeds 0, 1"


def test_several_methods_share_a_panel_and_are_named_beside_their_last_rounds_the_best_first(runs):
    figure = plot_runs({label: runs[label] for label in ("FedGP", "FedAvg")})
    curves, last = figure.axes
    assert list(lines_of(curves)) == ["FedGP", "FedAvg"]
    assert names_beside(last) == ["FedAvg", "FedGP"]
    assert [float(bars.lines[0].get_xdata()[0]) for bars in bars_of(last)] == pytest.approx([30, 20])
    assert last.get_xlabel() == "Mean ± std of the last 5 rounds"


def test_a_method_without_an_accuracy_is_named_last_without_a_dot(history):
    _, last = plot_runs({"None": [history(None)], "FedAvg": [history(0.5)]}).axes
    assert names_beside(last) == ["FedAvg", "None"]
    assert [bars.get_label() for bars in bars_of(last)] == ["FedAvg"]


def test_each_method_that_estimates_beta_has_a_panel_of_its_own(runs):
    figure = plot_runs(runs)
    _, _, *betas = figure.axes
    assert [axis.get_title() for axis in betas] == ["FedDA_Auto", "FedGP_Auto"]
    assert [axis.get_ylabel() for axis in betas] == ["Weight (β) of the source", ""]
    for axis in betas:
        assert axis.get_xlabel() == "Round"
        assert list(lines_of(axis)) == ["source-1", "source-2"]
        assert axis.get_ylim()[0] == 0
    (legend,) = figure.subfigs[1].legends
    assert [text.get_text() for text in legend.get_texts()] == ["source-1", "source-2"]


def test_a_beta_estimated_in_some_round_only_is_enough_for_a_panel(record):
    history = [
        record(1, 0.1, betas={"source-1": 0.5}, estimated=False),
        record(2, 0.2, held="no usable reply of the target"),
        record(3, 0.3, betas={"source-1": 0.7}),
    ]
    _, axis = plot_runs({"FedGP_Auto": [history]}).axes
    line = lines_of(axis)["source-1"]
    assert list(line.get_xdata()) == [1, 3]
    assert list(line.get_ydata()) == pytest.approx([0.5, 0.7])


def test_a_joint_weight_is_drawn_as_a_beta_is(record):
    history = [record(number, 0.1, betas={"source-1": 0.5 / number}) for number in (1, 2)]
    for one in history:
        for entry in one["sources"].values():
            entry["weight"] = entry.pop("beta")
    _, axis = plot_runs({"FedDA_Joint": [history]}).axes
    assert list(lines_of(axis)["source-1"].get_ydata()) == [0.5, 0.25]


def test_lines_are_means_over_seeds_in_percent_and_bands_one_sample_deviation(runs):
    figure = plot_runs({"FedAvg": runs["FedAvg"]})
    (axis,) = figure.axes
    line = lines_of(axis)["FedAvg"]
    assert list(line.get_xdata()) == [1, 2, 3]
    assert list(line.get_ydata()) == pytest.approx([20, 30, 40])
    (band,) = axis.collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
    # As in the tables: two seeds that differ by 20 deviate by 20 / √2.
    assert heights.min() == pytest.approx(20 - 200**0.5)
    assert heights.max() == pytest.approx(40 + 200**0.5)


def test_betas_are_means_over_the_seeds_that_know_them(runs):
    _, axis = plot_runs({"FedDA_Auto": runs["FedDA_Auto"]}).axes
    lines = lines_of(axis)
    assert list(lines["source-1"].get_ydata()) == pytest.approx([0.3] * 3)
    assert list(lines["source-2"].get_ydata()) == pytest.approx([0.6] * 3)


def test_one_seed_has_no_band(history):
    (axis,) = plot_runs({"FedAvg": [history(0.1, 0.2)]}).axes
    assert len(axis.get_lines()) == 1
    assert len(axis.collections) == 0


def test_rounds_without_an_accuracy_are_left_out_of_the_line(history):
    (axis,) = plot_runs({"FedAvg": [history(0.1, None, 0.3)]}).axes
    line = lines_of(axis)["FedAvg"]
    assert list(line.get_xdata()) == [1, 3]
    assert list(line.get_ydata()) == pytest.approx([10, 30])


def test_seeds_with_different_numbers_of_rounds_share_a_line(history):
    (axis,) = plot_runs({"FedAvg": [history(0.1, 0.2, 0.3), history(0.3)]}).axes
    line = lines_of(axis)["FedAvg"]
    assert list(line.get_ydata()) == pytest.approx([20, 20, 30])
    (band,) = axis.collections
    vertices = np.asarray(band.get_paths()[0].vertices)
    assert np.isfinite(vertices).all()
    assert np.allclose(vertices[vertices[:, 0] == 3, 1], 30)


def test_methods_and_sources_have_colours_of_their_own(runs):
    accuracy, _, *betas = plot_runs(runs).axes
    for axis in (accuracy, *betas):
        colors = [line.get_color() for line in axis.get_lines()]
        assert len(set(colors)) == len(colors)


def test_thirty_methods_can_be_told_apart_without_colour_or_with_it(history):
    runs = {f"method {i}": [history(*[i / 40] * 30)] for i in range(30)}
    figure = plot_runs(runs)
    curves, last = figure.axes
    looks = [(line.get_color(), line.get_marker(), line.get_linestyle()) for line in curves.get_lines()]
    assert len({(color, marker) for color, marker, _ in looks}) == 30
    assert len({(marker, dash) for _, marker, dash in looks}) == 30
    dots = {bars.get_label(): bars.lines[0] for bars in bars_of(last)}
    assert [(dots[name].get_color(), dots[name].get_marker()) for name in runs] == [
        look[:2] for look in looks
    ]
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in last.get_yticklabels()]
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))
    assert not curves.collections, "so many bands would hide the curves"


def test_a_line_is_broken_where_many_rounds_are_unknown(history):
    (axis,) = plot_runs({"Mixture": [history(0.1, 0.2, *[None] * 20, 0.9)]}).axes
    (line,) = axis.get_lines()
    assert np.asarray(line.get_xdata()).tolist() == [1, 2, 12.5, 23]
    assert np.isnan(np.asarray(line.get_ydata())[2])


@pytest.mark.parametrize("rounds", [2, 3, 30])
def test_rounds_are_counted_in_whole_numbers(history, rounds):
    figure = plot_runs({"FedAvg": [history(*np.linspace(0.1, 0.9, rounds))]})
    (axis,) = figure.axes
    figure.canvas.draw()
    low, high = axis.get_xlim()
    ticks = [tick for tick in axis.get_xticks() if low <= tick <= high]
    assert ticks
    assert all(float(tick).is_integer() for tick in ticks)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_run_of_a_single_round_can_be_seen(history, rounds):
    (axis,) = plot_runs({"FedAvg": [history(*[0.5] * rounds)]}).axes
    (line,) = axis.get_lines()
    assert np.size(line.get_xdata()) > 1 or line.get_marker() not in ("None", "", " ", None)


@pytest.mark.parametrize("methods", [1, 2, 4])
def test_labels_are_legible_and_within_the_figure(runs, methods):
    figure = plot_runs(
        dict(list(runs.items())[-methods:]), about="digits, rotate; seeds 0, 1; mean ± std over seeds"
    )
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    for axis in figure.axes:
        texts = [axis.xaxis.label, axis.yaxis.label, axis.title, *axis.get_yticklabels()]
        assert all(float(text.get_fontsize()) >= 8 for text in texts)
        box = axis.get_tightbbox()
        assert (box.x0 >= 0, box.y0 >= 0, box.x1 <= width, box.y1 <= height) == (True,) * 4


def test_panels_do_not_overlap(runs):
    figure = plot_runs(runs)
    figure.canvas.draw()
    (legend,) = figure.subfigs[1].legends
    boxes: list[Any] = [*(axis.get_tightbbox() for axis in figure.axes), legend.get_window_extent()]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_save_figure_writes_the_format_of_the_extension_and_leaves_no_part(runs, tmp_path, ending):
    path = tmp_path / f"picture.{ending}"
    path.write_bytes(b"an older picture")
    save_figure(path, plot_runs({"FedAvg": runs["FedAvg"]}))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert path.read_bytes().startswith(starts[ending])


def test_save_figure_draws_something(runs, tmp_path):
    save_figure(tmp_path / "picture.png", plot_runs(runs))
    pixels = matplotlib.image.imread(io.BytesIO((tmp_path / "picture.png").read_bytes()))
    height, width, _ = pixels.shape
    assert width > height > 400
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 50


def test_a_figure_that_cannot_be_drawn_leaves_the_old_one(runs, tmp_path, monkeypatch):
    path = tmp_path / "picture.png"
    path.write_bytes(b"an older picture")
    figure = plot_runs({"FedAvg": runs["FedAvg"]})

    def fail(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(MemoryError):
        save_figure(path, figure)
    assert path.read_bytes() == b"an older picture"
    assert [file.name for file in tmp_path.iterdir()] == ["picture.png"]


def test_five_methods_that_estimate_beta_have_two_lines_of_panels(runs):
    axes = plot_runs({f"Auto {i}": runs["FedDA_Auto"] for i in range(5)}).axes
    assert [axis.get_title() for axis in axes[2:]] == [f"Auto {i}" for i in range(5)]


def test_of_many_sources_a_panel_has_the_mean_and_the_range_of_beta(record, tmp_path):
    names = [f"source-{i}" for i in range(100)]
    history = [
        record(number, 0.5, betas={name: i / 100 for i, name in enumerate(names)}) for number in (1, 2)
    ]
    figure = plot_runs({"FedGP_Auto": [history]})
    _, axis = figure.axes
    (mean,) = lines_of(axis).values()
    assert list(mean.get_ydata()) == pytest.approx([0.495] * 2)
    (band,) = axis.collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((0, 0.99))
    (legend,) = figure.subfigs[1].legends
    assert [text.get_text() for text in legend.get_texts()] == ["mean of 100 sources", "lowest to highest"]
    save_figure(tmp_path / "picture.png", figure)  # without the warning of a layout that has no room


def test_a_mixture_that_is_evaluated_once_is_drawn_by_its_members(record, history):
    members = {
        "sources": {"weight": 0.2, "test": 0.5},
        "head": {"weight": 0.8, "test": 0.7},
        "prior": {"left-out": "no label"},
    }
    last = record(3, 0.734) | {"mixture": {"members": members}}
    (axis,) = plot_runs({"Mixture": [[record(1), record(2), last]]}).axes
    assert axis.get_title() == "Mixture: Target test accuracy (%) 73.4"
    (bars,) = axis.containers
    assert [bar.get_width() for bar in bars] == [0.2, 0.8]
    assert names_beside(axis) == ["sources", "head"]
    (axis,) = plot_runs({"Mixture": [[record(1, 0.7), record(2), last]]}).axes
    assert not axis.patches, "two evaluations are a curve"
