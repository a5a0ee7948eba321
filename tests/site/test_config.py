"""The words of a node's configuration and of a run."""

from typing import Any

import pytest
from naming import names

from fda_flower import RunConfig
from fda_flower.client_app import at_node
from fda_flower.errors import ConfigError
from fda_flower.site import PrivacySettings, Site


@pytest.mark.parametrize(
    ("given", "thing", "value"),
    [
        ({"dp_clip": 0.0}, "dp-clip", 0.0),
        ({"dp_clip": 1.0, "dp_noise": -1.0}, "dp-noise", -1.0),
        ({"dp_clip": 1.0, "dp_noise": 1e-300}, "dp-noise", 1e-300),
        ({"dp_clip": 1.0, "dp_delta": 1.0}, "dp-delta", 1.0),
        ({"dp_clip": 1.0, "dp_noise": 1.0, "max_epsilon": -1.0}, "max-epsilon", -1.0),
        ({"dp_clip": 1.0, "max_epsilon": 8.0}, "max-epsilon", 8.0),
        ({"dp_clip": 1.0, "dp_report": "all"}, "dp-report", "all"),
        ({"dp_noise": 1.0}, "dp-noise", 1.0),
        ({"dp_report": "none"}, "dp-report", "none"),
        ({"dp_allow": "penalty"}, "dp-allow", "penalty"),
        ({"dp_clip": 1.0, "dp_open_target": True}, "dp-open-target", True),
        ({"dp_unit": "row", "dp_noise": 1.0}, "dp-unit", "row"),
        ({"dp_unit": "patient"}, "dp-unit", "patient"),
        ({"dp_unit": "patient", "dp_noise": 1.0}, "dp-group", ""),
        ({"dp_group": "patient"}, "dp-group", "patient"),
    ],
)
def test_what_cannot_work_or_has_no_effect_is_refused(given, thing, value):
    for make in (PrivacySettings, RunConfig):
        with pytest.raises(ConfigError, check=names(thing, value)):
            make(**given)


def said_by(node):
    return Site.read(node, 7).privacy


def test_a_node_that_says_one_word_of_privacy_decides_all():
    assert said_by({"domain": "a", "state-dir": "/srv"}) is None
    found = said_by({"dp-clip": 2, "dp-noise": "1.5", "dp-allow": "penalty"})
    assert found == PrivacySettings(dp_clip=2.0, dp_noise=1.5, dp_allow="penalty")
    # A budget of its own is none of what the run asks.
    with pytest.raises(ConfigError, check=names("max-epsilon", 8.0)):
        said_by({"max-epsilon": 8.0})
    with pytest.raises(ConfigError, check=names("entry of the node configuration", "dp-nose")):
        said_by({"dp-clip": 1.0, "dp-nose": 1.0})
    opens = {"dp-unit": "patient", "dp-group": "row", "dp-noise": 1.0, "dp-open-target": True}
    with pytest.raises(ConfigError, check=names("dp-open-target", True)):
        said_by({"role": "source", **opens})
    assert said_by({"role": "target", **opens}).dp_open_target


def test_a_run_that_protects_patients_has_a_method_that_can_and_a_target_that_accepts_it():
    patients: dict[str, Any] = {"dp_unit": "patient", "dp_group": "row", "dp_noise": 1.0}
    for method in ("target-only", "oracle", "feddwa", "ditto", "irm", "vrex", "groupdro", "kd3a", "fedbn"):
        with pytest.raises(ConfigError, match=r"choose one of .*fedavg", check=names("dp-unit", "patient")):
            RunConfig(method=method, **patients)
    with pytest.raises(ConfigError, check=names("dp-open-target", False)):
        RunConfig(method="ridge", dp_allow="*", **patients)
    accepting: dict[str, Any] = {"method": "ridge", "dp_open_target": True, **patients}
    assert RunConfig(**accepting).privacy.on
    without: list[dict[str, Any]] = [
        {"method_options": "secure=true"},
        {"method_options": "paths=pooled"},
        {"target": "all"},
        {"dataset": "rbf"},
    ]
    for settings in without:
        with pytest.raises(ConfigError, check=names("dp-unit", "patient")):
            RunConfig(**accepting, **settings)
    with pytest.raises(ConfigError, check=names("dp-clip", 1.0)):
        RunConfig(**accepting, dp_clip=1.0)


def test_a_run_whose_steps_protect_patients_trains_one_linear_layer_by_the_plain_loss():
    pytest.importorskip("opacus")
    private: dict[str, Any] = {
        "method": "fedgp-auto",
        "dp_unit": "patient",
        "dp_group": "row",
        "max_epsilon": 4.0,
    }
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"train": "last", "model": "lenet"}, "dp-unit", "patient"),
        ({"train": "adapters:4", "model": "lenet"}, "dp-unit", "patient"),
        ({"method_options": "estimate_at=start"}, "dp-unit", "patient"),
        ({"class_weights": "balanced"}, "class-weights", "balanced"),
    ]
    for settings, thing, value in cases:
        with pytest.raises(ConfigError, check=names(thing, value)):
            RunConfig(**private, **settings)
    run = RunConfig(**private, dp_clip=0.5)
    assert run.privacy.chooses_noise
    assert run.fingerprint() != RunConfig(**{**private, "max_epsilon": 2.0}, dp_clip=0.5).fingerprint()


OWN: dict[str, Any] = {"dataset": "table", "model": "logistic", "target": "south"}
"""A run on own tables."""


@pytest.mark.parametrize(
    ("group", "of_run", "own", "found"),
    [
        ("patient", {"group": "visit", "ignore": "patient"}, "", ("patient", "visit")),
        ("patient", {"group": "", "ignore": "visit,patient"}, "", ("patient", "visit")),
        ("patient", {}, 'group = "patient"', ("patient", "")),
        ("row", {"group": "patient"}, "", ("", "patient")),
        ("row", {"group": "patient"}, 'ignore = "visit"', ("", "visit,patient")),
    ],
)
def test_the_site_says_who_is_a_patient_whatever_the_run_groups(group, of_run, own, found, tmp_path):
    (tmp_path / "fda.toml").write_text(own)
    node: dict[str, Any] = {
        "domain": "north",
        "data-dir": str(tmp_path),
        "state-dir": str(tmp_path / "state"),
    }
    node |= {"dp-unit": "patient", "dp-group": group, "dp-noise": 1.0}
    options = {"domains": "north,south", "classes": "0,1", **of_run}
    run_group = of_run.get("group") or "visit"
    private: dict[str, Any] = {"dp_unit": "patient", "dp_group": run_group, "dp_noise": 2.0}
    plain, of_patients = (
        at_node(RunConfig(**OWN, **more, method="fedavg", dataset_options=options), Site.read(node, 7))[0]
        for more in ({}, private)
    )
    read = dict(plain.data.dataset_options)
    assert (read["group"], read.get("ignore", "")) == found
    assert dict(of_patients.data.dataset_options)["group"] == found[0]


@pytest.mark.parametrize(("group", "own"), [("row", "patient"), ("patient", "ward")])
def test_who_is_a_patient_is_said_in_one_way(group, own, tmp_path):
    """A site's two files, or a run's two options: else a patient's samples were in training and in test."""
    private: dict[str, Any] = {"dp_unit": "patient", "dp_group": group, "dp_noise": 1.0}
    options = {"domains": "north,south", "classes": "0,1"}
    with pytest.raises(ConfigError, check=names("dp-group", group)):
        RunConfig(**OWN, **private, method="fedavg", dataset_options={**options, "group": own})
    (tmp_path / "fda.toml").write_text(f'group = "{own}"')
    folders = {"data-dir": str(tmp_path), "state-dir": str(tmp_path)}
    node = {**folders, "domain": "north", **{key.replace("_", "-"): value for key, value in private.items()}}
    run = RunConfig(**OWN, method="fedavg", dataset_options=options)
    with pytest.raises(ConfigError, check=names("dp-group", group)):
        at_node(run, Site.read(node, 7))


def test_a_run_does_not_say_who_is_a_patient_of_a_site(tmp_path):
    node = {"domain": "north", "data-dir": str(tmp_path), "state-dir": str(tmp_path)}
    options = {"domains": "north,south", "classes": "0,1"}
    private: dict[str, Any] = {"dp_unit": "patient", "dp_group": "visit", "dp_noise": 1.0}
    run = RunConfig(**OWN, **private, method="fedavg", dataset_options=options)
    with pytest.raises(ConfigError, check=names("dp-group", "visit")):
        at_node(run, Site.read(node, 7))


@pytest.mark.parametrize(
    ("settings", "thing", "value"),
    [
        ({"dp_group": "patient"}, "dp-group", "patient"),
        ({"dp_group": "row", **OWN, "dataset_options": {"domains": "north,south"}}, "dp-unit", "patient"),
    ],
)
def test_a_data_set_has_groups_for_its_patients_and_what_follows_from_all_is_said(settings, thing, value):
    with pytest.raises(ConfigError, check=names(thing, value)):
        RunConfig(method="fedavg", dp_unit="patient", dp_noise=1.0, **settings)


def test_a_run_has_them_as_settings():
    run = RunConfig(dp_clip=1.0, dp_noise=0.5, max_epsilon=10.0)
    assert run.privacy == PrivacySettings(dp_clip=1.0, dp_noise=0.5, max_epsilon=10.0)
    assert RunConfig.from_flower(run.to_flower()) == run
    assert not RunConfig().privacy.on
    more = RunConfig(dp_clip=1.0, dp_noise=0.5, max_epsilon=20.0)
    assert more.fingerprint() == run.fingerprint() != RunConfig().fingerprint()
