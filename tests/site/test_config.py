"""The words of a node's configuration and of a run."""

import pytest
from naming import names

from fda_flower import RunConfig
from fda_flower.errors import ConfigError
from fda_flower.site import PrivacySettings, SiteConfig


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dp_clip": 0.0}, "dp-clip is 0, it must be a number above 0"),
        ({"dp_clip": 1.0, "dp_noise": -1.0}, "dp-noise is -1, it must be a number of at least 0"),
        ({"dp_clip": 1.0, "dp_delta": 1.0}, "dp-delta is 1, it must be between 0 and 1"),
        ({"dp_clip": 1.0, "dp_noise": 1.0, "max_epsilon": -1.0}, "max-epsilon is -1, it must be"),
        ({"dp_clip": 1.0, "max_epsilon": 8.0}, "max-epsilon is 8, but dp-noise is 0"),
        ({"dp_clip": 1.0, "dp_buffers": "mean"}, "dp-buffers is 'mean': choose local or noise"),
        ({"dp_clip": 1.0, "dp_report": "all"}, "dp-report is 'all': choose none or figures or full"),
        ({"dp_noise": 1.0}, "dp-noise is 1.0, but without dp-clip replies are sent unchanged"),
        ({"dp_report": "none"}, "dp-report is 'none', but without dp-clip"),
        ({"dp_allow": "penalty"}, "dp-allow is 'penalty', but without dp-clip"),
    ],
)
def test_what_cannot_work_or_has_no_effect_is_refused(given, says):
    with pytest.raises(ConfigError, match=says):
        PrivacySettings(**given)
    with pytest.raises(ConfigError, match=says):
        RunConfig(**given)


def said_by(node):
    return SiteConfig(node, 7).privacy


def test_a_node_that_says_nothing_of_privacy_has_none():
    assert said_by({"domain": "a", "state-dir": "/srv"}) is None


def test_a_node_that_says_one_word_decides_all():
    found = said_by({"dp-clip": 2, "dp-noise": "1.5", "dp-allow": "penalty"})
    assert found == PrivacySettings(dp_clip=2.0, dp_noise=1.5, dp_allow="penalty")


def test_a_budget_alone_is_an_error_and_not_a_budget_of_what_the_run_asks():
    with pytest.raises(ConfigError, match="max-epsilon is 8, but dp-noise is 0"):
        said_by({"max-epsilon": 8.0})


def test_a_misspelt_word_of_a_node_is_refused():
    with pytest.raises(ConfigError, check=names("node configuration has", "dp-nose")):
        said_by({"dp-clip": 1.0, "dp-nose": 1.0})


def test_metrics_are_allowed_by_name_or_pattern():
    settings = PrivacySettings(dp_clip=1.0, dp_allow="mask-share, contribution-*")
    assert settings.allows("mask-share")
    assert settings.allows("contribution-a")
    assert not settings.allows("penalty")
    assert not PrivacySettings().allows("train-loss")


def test_a_run_has_them_as_settings():
    run = RunConfig(dp_clip=1.0, dp_noise=0.5, max_epsilon=10.0)
    assert run.privacy == PrivacySettings(dp_clip=1.0, dp_noise=0.5, max_epsilon=10.0)
    assert RunConfig.from_flower(run.to_flower()) == run
    assert not RunConfig().privacy.on
    more = RunConfig(dp_clip=1.0, dp_noise=0.5, max_epsilon=20.0)
    assert more.fingerprint() == run.fingerprint() != RunConfig().fingerprint()


def test_runs_that_it_does_not_fit_are_refused():
    with pytest.raises(ConfigError, check=names("validation", "cv:3")):
        RunConfig(dp_clip=1.0, dp_noise=1.0, validation="cv:3")
    with pytest.raises(ConfigError, match="'central:erm' has all data in one place"):
        RunConfig(dp_clip=1.0, method="central:erm")
