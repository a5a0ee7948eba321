"""The search of settings: its trials, what they do not see, and how a search goes on."""

from typing import Any
from unittest.mock import ANY, Mock

import optuna
import pytest
from naming import names

from fda_flower import RunConfig
from fda_flower.errors import ConfigError, RunError
from fda_flower.experiments import tuning
from fda_flower.experiments.definition import merged
from fda_flower.experiments.spaces import read_spaces, settings_of_trial
from fda_flower.experiments.tuning import storage_of, tune
from fda_flower.files import only_writer
from fda_flower.running.run import RunResult, run_config

RATES = read_spaces(["learning-rate=log:1e-4..1e-1", "batch-size=8,16"])


def make(seed, own, **settings):
    base: dict[str, Any] = {"model": "mlp", "rounds": 3, "sources": 2, "target_samples": 60}
    base |= {"validation": 0.2, **settings}
    return RunConfig(**{**merged(base, own), "seed": seed})


def facts(result):
    return [(t.number, dict(t.values), t.state, t.score, t.round) for t in result.trials]


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"trials": 0}, ("trials", 0)),
        ({"spaces": read_spaces(["learning-rate=-1..1"])}, ("search of learning-rate", -1.0)),
        ({"spaces": read_spaces(["optimizer=adam,best"])}, ("search of optimizer", "best")),
        ({"spaces": read_spaces(["method-option.mu=0.1..1"])}, ("search of method-option.mu", 0.1)),
        ({"settings": {"method": "ridge", "model": "auto"}}, ("search of learning-rate", 1e-4)),
        ({"settings": {"validation": None}}, ("validation", None)),
        ({"settings": {"target_samples": 12}}, ("validation", ANY)),
    ],
)
def test_what_cannot_work_is_refused_before_any_trial(how, error, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "run_config", lambda *_, **__: pytest.fail("a trial was run"))
    settings = how.pop("settings", {})
    spaces = how.pop("spaces", RATES)
    with pytest.raises(ConfigError, check=names(*error)):
        tune(lambda seed, own: make(seed, own, **settings), spaces, tmp_path / "tune", **how)
    assert not (tmp_path / "tune").exists()


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuning")
    return tune(make, RATES, folder, trials=4), folder


def test_the_best_trial_is_the_first_with_the_best_score_which_is_that_of_its_best_round(done):
    result, _ = done
    scores = [trial.score for trial in result.trials if trial.score is not None]
    assert len(result.trials) == 4
    assert result.best is next(trial for trial in result.trials if trial.score == max(scores))
    history = run_config(make(0, settings_of_trial(result.best.values))).history
    assert result.best.score == max(record["validation"] for record in history)
    assert result.best.round == history[-1]["selected"]


def test_the_same_search_has_the_same_trials_and_no_test_label_has_a_say(done, tmp_path, shuffled):
    shuffled()
    assert facts(tune(make, RATES, tmp_path, trials=4)) == facts(done[0])


def test_a_search_that_was_cut_off_goes_on_as_if_it_had_not_been(done, tmp_path, monkeypatch):
    calls = []

    def interrupted(config, how):
        calls.append(config)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run_config(config, how)

    monkeypatch.setattr(tuning, "run_config", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune(make, RATES, tmp_path, trials=4)
    with pytest.raises(ConfigError, check=names("output folder")):
        tune(make, RATES, tmp_path, trials=4)
    held = names("output folder", tmp_path, "wait until it has ended")
    with only_writer(tmp_path), pytest.raises(ConfigError, check=held):
        tune(make, RATES, tmp_path, trials=4, resume=True)
    result = tune(make, RATES, tmp_path, trials=4, resume=True)
    assert facts(result) == facts(done[0])
    assert len(calls) == 5


def test_a_trial_whose_process_was_killed_is_run_again(done, tmp_path):
    tune(make, RATES, tmp_path, trials=2)
    study = optuna.load_study(study_name="tune", storage=storage_of(tmp_path / "study.db"))
    study.ask(dict(RATES))
    assert facts(tune(make, RATES, tmp_path, trials=4, resume=True)) == facts(done[0])


@pytest.mark.parametrize(
    ("settings", "spaces"), [({"rounds": 4}, RATES), ({}, read_spaces(["learning-rate=log:1e-4..1e-1"]))]
)
def test_a_folder_holds_one_search(done, settings, spaces):
    with pytest.raises(ConfigError, check=names(str(done[1]))):
        tune(lambda seed, own: make(seed, own, **settings), spaces, done[1], trials=4, resume=True)


@pytest.fixture
def scores(monkeypatch):
    """Replace each run by scores by round, which a function of its configuration returns."""

    def replace_by(function):
        def fake(config, how):
            history = [
                {"round": number, "validation": value} for number, value in enumerate(function(config), 1)
            ]
            for record in history:
                how.on_round(record)
            return RunResult(config, history, {}, {}, None)

        monkeypatch.setattr(tuning, "run_config", fake)
        monkeypatch.setattr(tuning, "check_data", lambda config: (Mock(domains={}), None))

    return replace_by


def test_a_search_goes_on_only_with_the_sampler_and_the_data_that_it_began_with(
    scores, tmp_path, monkeypatch
):
    scores(lambda config: [0.5])
    monkeypatch.setattr(tuning, "data_digests", lambda _: {"a": "1"})
    tune(make, RATES, tmp_path, trials=1)
    changed = {optuna: ("__version__", "0.1"), tuning: ("data_digests", lambda _: {"a": "2"})}
    for (where, change), thing in zip(
        changed.items(), [("optuna", optuna.__version__), ("data", "a")], strict=True
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, *change)
            with pytest.raises(ConfigError, check=names(*thing)):
                tune(make, RATES, tmp_path, trials=2, resume=True)
    assert len(tune(make, RATES, tmp_path, trials=2, resume=True).trials) == 2


EPOCHS = read_spaces(["epochs=1,2,3,4,5,6,7"])


def test_a_study_that_cannot_be_read_or_written_is_an_error_with_a_remedy(scores, tmp_path, monkeypatch):
    scores(lambda config: [0.5])
    monkeypatch.setattr(
        optuna.Trial, "report", Mock(side_effect=optuna.exceptions.StorageInternalError("disk full"))
    )
    with pytest.raises(RunError, check=names("search's file")):
        tune(make, RATES, tmp_path, trials=1)
    (tmp_path / "study.db").write_bytes(b"no database " * 100)
    with pytest.raises(RunError, check=names("search's file")):
        tune(make, RATES, tmp_path, trials=1, resume=True)


def test_the_score_is_the_mean_over_seeds(scores, tmp_path):
    scores(lambda config: [0.1 * config.epochs + 0.01 * config.seed, 0.0, 0.0])
    result = tune(make, EPOCHS, tmp_path, trials=7, seeds=[3, 5])
    assert [trial.values["epochs"] for trial in result.trials] == list("1234567")
    assert result.trials[0].score == pytest.approx(0.14)
    assert result.best is result.trials[6]
    assert result.best.round == 1


def test_the_mean_over_folds_is_taken_by_round(scores, tmp_path):
    by_fold = {"fold:1/2": [0.9, 0.5, 0.1], "fold:2/2": [0.0, 0.5, 0.7]}
    scores(lambda config: by_fold[config.validation])
    result = tune(lambda s, own: make(s, own, validation="cv:2"), EPOCHS, tmp_path, trials=7)
    assert {trial.score for trial in result.trials} == {0.5}
    assert result.trials[0].round == 2
    assert result.best is result.trials[0]


def test_a_bad_trial_is_pruned_and_does_not_go_on(scores, tmp_path):
    seen = []

    def values(config):
        for number in range(3):
            seen.append((config.epochs, number))
            yield 0.1 if config.epochs == 6 else 0.5

    scores(values)
    result = tune(make, EPOCHS, tmp_path, trials=7)
    assert [trial.state for trial in result.trials] == ["complete"] * 5 + ["pruned", "complete"]
    assert result.trials[5].score is None


def test_a_failed_trial_has_its_reason_and_does_not_end_the_search(scores, tmp_path):
    def values(config):
        if config.epochs == 2:
            raise ConfigError("too much")
        if config.epochs == 3:
            raise ZeroDivisionError
        return [] if config.epochs == 4 else [0.5]

    scores(values)
    seen: list[int] = []
    result = tune(make, EPOCHS, tmp_path, trials=7, on_trial=lambda state: seen.append(len(state.trials)))
    assert [trial.state for trial in result.trials[:4]] == ["complete", "failed", "failed", "failed"]
    assert result.trials[1].reason == "too much"
    assert result.trials[2].reason == "ZeroDivisionError()"
    assert "has judged no round by held-out labels" in result.trials[3].reason
    assert seen == list(range(1, 8))


def test_an_error_is_better_the_smaller_it_is(scores, tmp_path):
    scores(lambda config: [0.1 * config.epochs, 0.9])

    result = tune(lambda seed, own: make(seed, own, metric="ece"), EPOCHS, tmp_path, trials=7)
    assert result.best is result.trials[0]


@pytest.mark.parametrize(("metric", "floor"), [("accuracy", 0.1), ("auroc", 0.5), ("ece", None)])
def test_trials_are_compared_with_the_baseline_on_the_held_out_labels(tmp_path, metric, floor):
    spaces = read_spaces(["learning-rate=1e-9,1e-8"])
    result = tune(lambda seed, own: make(seed, own, rounds=1, metric=metric), spaces, tmp_path, trials=1)
    assert result.floor == (None if floor is None else pytest.approx(floor, abs=0.08))
