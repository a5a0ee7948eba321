"""A run of a rare outcome says the same in all its places, in one metric, with its interval and its cases."""

import html
import json
from pathlib import Path

import numpy as np
import pytest
from cli.test_models import fda

from fda_flower.metrics import METRICS

RUN = ("--method", "ridge", "--dataset", "table", "--data-dir", "hospitals", "--target-samples", 100)


@pytest.fixture
def hospitals():
    """Three tables of 300 patients, of whom 5% are ill."""
    rng = np.random.default_rng(0)
    Path("hospitals").mkdir()
    for name in "abc":
        x = rng.normal(size=(300, 3))
        ill = np.argsort(-(x.sum(axis=1) + rng.normal(size=300)))[:15]
        labels = np.where(np.isin(np.arange(300), ill), "ill", "well")
        rows = [",".join([*map("{:.3f}".format, each), label]) for each, label in zip(x, labels, strict=True)]
        Path("hospitals", f"{name}.csv").write_text("\n".join(["age,crp,bmi,label", *rows]))


@pytest.mark.parametrize(
    ("options", "name", "against"),
    [
        ((), "auroc", "chance on 60"),
        (("--metric", "accuracy"), "accuracy", "naming the most frequent class, 'well', for all 60"),
    ],
)
@pytest.mark.usefixtures("hospitals")
def test_all_that_judges_a_run_is_in_its_metric_and_agrees(options, name, against):
    metric, terminal = METRICS[name], fda("run", *RUN, *options, "--output", "run")
    summary = json.loads(Path("run/summary.json").read_text())
    evaluated = json.loads(fda("evaluate", "run", "--json").splitlines()[-1])
    assert (summary["metric"], evaluated["metric"]) == (name, name)
    assert evaluated["figures"][name] == pytest.approx(summary["last5"])
    assert evaluated["intervals"][name] == pytest.approx(summary["interval"])
    assert evaluated["intervals"] == {n: pytest.approx(ends) for n, ends in summary["intervals"].items()}
    assert evaluated["baseline"][name] == pytest.approx(summary["baseline"][name])
    for folder in ("--html", "--card"):
        fda("report", "run", folder)
    page, card = html.unescape(Path("run/report.html").read_text()), Path("run/README.md").read_text()
    said, predicted = fda("evaluate", "run"), fda("predict", "run")
    value, floor = metric.show(summary["last5"]), metric.show(summary["baseline"][name])
    between = " to ".join(map(metric.show, summary["interval"]))
    (verdict,) = (line for line in terminal.splitlines() if f"than {against} test samples" in line)
    assert f"{metric.title} {floor}" in verdict
    assert (", 3 of 60 ill" in verdict) == (name == "auroc")
    assert all(verdict in text for text in (said, predicted, page, card))
    assert f"{metric.title} last5 {value}" in terminal
    assert f"{metric.title}: {value} (95% interval: {between})" in said
    assert said.splitlines()[-1].endswith("3 of 60 ill")
    assert f"**{metric.title} {value}** on 60 test samples of the target (3 of 60 ill)" in card
    assert all(between in text for text in (page, card))
    for text in (terminal, page, card):
        assert f"points of {metric.title} here, by held-out labels" in text
        assert "well: recall 100.0% of 57 (95% interval" in text
        assert "Few test cases (ill 3)" in text
    assert ("Metric: AUROC, since one of two classes has less than 10%" in terminal) == (not options)


@pytest.mark.usefixtures("hospitals")
def test_curves_are_drawn_where_the_outputs_are_and_a_resume_keeps_the_metric():
    fda("run", *RUN, "--output", "run")
    assert "AUROC: " in fda("evaluate", "run", "--curves", "curves.svg")
    assert Path("curves.svg").exists()
    assert "give a file that ends with .png" in fda("evaluate", "run", "--curves", "curves.txt")
    again = fda("run", *RUN, "--output", "run", "--metric", "accuracy", "--resume", "--rounds", 2)
    assert "has judged held-out labels in AUROC: give --metric auroc" in again


@pytest.mark.usefixtures("hospitals")
def test_sites_are_judged_in_auroc_and_not_ranked_on_three_cases():
    says = fda("run", *RUN, "--target", "all", "--output", "run")
    assert "What the others bring to each site: AUROC" in says
    assert "Few test cases of the rarest class (a 3, b 3, c 3): do not rank these sites." in says
    assert "points of AUROC per site on average; the gain has no interval" in says


@pytest.mark.usefixtures("hospitals")
def test_several_labels_are_judged_alike_with_the_cases_of_each():
    for path in Path("hospitals").iterdir():
        head, *rows = path.read_text().replace("ill", "1").replace("well", "0").splitlines()
        lines = [f"{row},{int(float(row.split(',')[0]) > 0)}" for row in rows]
        path.write_text("\n".join([f"{head},tall", *lines]))
    options = ("--dataset-option", "task=multilabel", "--dataset-option", "label=label,tall")
    terminal = fda("run", *RUN, *options, "--output", "run")
    fda("report", "run", "--card")
    said, card = fda("evaluate", "run"), Path("run/README.md").read_text()
    (verdict,) = (line for line in terminal.splitlines() if "than chance on 60 test samples" in line)
    assert "of 60 label: AUROC" in verdict
    assert all(verdict in text and "Few test cases (label " in text for text in (terminal, said, card))
    assert "| AUROC (mean over labels) |" in card
