import numpy as np
import pytest

from fda_flower.reporting import FIGURES, CellResult
from fda_flower.reporting.experiment_plots import predict, rule_of

RULES = ("Source Only", "Target Only", "FedDA", "FedGP")
ROWS = (*RULES, "FedDA_Auto", "FedGP_Auto", "Oracle")


@pytest.fixture
def estimated(record):
    """A maker of a round with estimates for each of two sources."""

    def make(number, sigma2, d2, tau2_d2):
        made = record(number, 0.5, betas={"a": 0.5, "b": 0.5}, estimated=False)
        for entry in made["sources"].values():
            entry |= {"sigma2": sigma2, "d2": d2, "tau2-d2": tau2_d2}
        return made

    return make


def letters(figure):
    """For each panel, the letter of each cell by (x, y)."""
    return [{text.get_position(): text.get_text() for text in axis.texts} for axis in figure.axes]


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("Source Only", "Source Only"),
        ("FedDA_0.5", "FedDA"),
        ("FedGP_Auto", "FedGP"),
        ("FedAvg", None),
        ("Oracle", None),
    ],
)
def test_rows_run_the_rule_that_their_label_begins_with(row, rule):
    assert rule_of(row) == rule


@pytest.mark.parametrize(
    ("estimates", "rule"),
    [
        # Source Only d², Target Only σ², FedDA (σ² + d²)/4, FedGP about (σ² + τ²d²)/4.
        ((4.0, 0.5, 0.5), "Source Only"),
        ((0.5, 8.0, 8.0), "Target Only"),
        ((4.0, 4.0, 4.0), "FedDA"),
        ((4.0, 4.0, 1.0), "FedGP"),
        ((4.0, 4.0, None), "FedDA"),
        ((4.0, -1.0, -1.0), "Source Only"),
    ],
)
def test_the_prediction_has_the_smallest_delta_error(results, estimated, estimates, rule):
    cell = CellResult(("50", "FedDA_Auto", "0.2"), 0, [estimated(1, *estimates)], 1000)
    assert predict(results(cells=[cell]), "50", "0.2") == rule


def test_the_prediction_is_of_the_row_at_initialisation_if_there_is_one(results, estimated):
    cells = [
        CellResult(("50", "FedDA_Auto", "0.2"), 0, [estimated(1, 0.5, 8.0, 8.0)], 1000),
        CellResult(("50", "At initialisation", "0.2"), 0, [estimated(1, 4.0, 0.5, 0.5)], 1000),
    ]
    assert predict(results(cells=cells), "50", "0.2") == "Source Only"


def test_the_prediction_is_of_the_first_round_that_has_estimates(results, estimated, record):
    first = record(1, 0.5) | {"warmup": True}
    history = [first, estimated(2, 0.5, 8.0, 8.0), estimated(3, 4.0, 0.5, 0.5)]
    made = results(cells=[CellResult(("", "FedGP_Auto", "0.2"), 0, history, 1000)])
    assert predict(made, "", "0.2") == "Target Only"


def test_the_prediction_is_of_the_mean_over_seeds_of_what_is_known(results, estimated):
    cells = [
        CellResult(("", "FedDA_Auto", "0.2"), 0, [estimated(1, 1.0, 2.0, None)], 1000),
        CellResult(("", "FedGP_Auto", "0.2"), 0, [estimated(1, 7.0, 6.0, 1.0)], 1000),
    ]
    assert predict(results(cells=cells), "", "0.2") == "FedGP"


def test_without_estimates_or_parameters_there_is_no_prediction(results, estimated, record):
    cells = [
        CellResult(("", "FedDA", "0.2"), 0, [record(1, 0.5, betas={"a": 0.5}, estimated=False)], 1000),
        CellResult(("", "FedDA_Auto", "0.2"), 0, [estimated(1, 1.0, 2.0, 2.0)], 0),
        CellResult(("", "FedDA_Auto", "0.2"), 1, [], 1000),
    ]
    assert predict(results(cells=cells), "", "0.2") is None


def test_maps_show_the_prediction_and_the_best_rows_without_and_with_estimated_beta(results, estimated):
    accuracies = {
        ("50", "Source Only", "0.2"): (50.0,),
        ("50", "FedDA", "0.2"): (60.0,),
        ("50", "FedGP_Auto", "0.2"): (70.0,),
        ("50", "Oracle", "0.2"): (99.0,),
        ("100", "Target Only", "0.4"): (60.0, 64.0),
        ("100", "FedGP", "0.4"): (63.0,),
        ("100", "FedDA_Auto", "0.4"): (10.0,),
    }
    made = results(accuracies, rows=ROWS, groups=("50", "100"), group_axis="Samples")
    extra = CellResult(("100", "FedDA_Auto", "0.4"), 7, [estimated(1, 0.5, 8.0, 8.0)], 1000)
    figure = FIGURES["best-rule"](
        results(cells=[*made.cells, extra], rows=ROWS, groups=("50", "100"), group_axis="Samples")
    )
    predicted, fixed, auto = letters(figure)
    assert predicted == {(1, 1): "T"}
    assert fixed == {(0, 0): "D", (1, 1): "G"}
    assert auto == {(0, 0): "G", (1, 1): "T"}
    assert [[label.get_text() for label in axis.get_xticklabels()] for axis in figure.axes] == [
        ["0.2", "0.4"]
    ] * 3
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["50", "100"]
    (legend,) = figure.legends
    assert [text.get_text()[:-4] for text in legend.get_texts()] == list(RULES)


def test_cells_have_the_colour_of_their_rule_in_the_legend(results):
    figure = FIGURES["best-rule"](results({("", "FedGP", "0.4"): (63.0,)}, rows=ROWS))
    (image,) = figure.axes[1].images
    values = np.ma.asarray(image.get_array())
    assert values.mask.tolist() == [[True, False]]
    (legend,) = figure.legends
    assert image.to_rgba(values)[0, 1].tolist() == list(legend.get_patches()[3].get_facecolor())


def test_one_row_of_a_rule_does_not_hide_a_better_one(results):
    accuracies = {
        ("", "FedGP_1", "0.2"): (80.0,),
        ("", "FedDA", "0.2"): (70.0,),
        ("", "FedGP_0.5", "0.2"): (60.0,),
    }
    _, fixed, _ = letters(FIGURES["best-rule"](results(accuracies, rows=("FedGP_1", "FedDA", "FedGP_0.5"))))
    assert fixed == {(0, 0): "G"}
