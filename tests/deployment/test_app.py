import tomllib

from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate

from fda_flower import RunConfig
from fda_flower.deployment.submission import write_app

CONFIG = RunConfig(
    method="fedgp",
    beta=(0.1, 0.2, 0.3),
    shift_options={"angle": 45.5},
    learning_rate=1e-5,
    target_samples="15%",
    data_dir='C:\\data "ü"',
)


def test_the_configuration_arrives_as_it_was(tmp_path):
    write_app(tmp_path, CONFIG.to_flower() | {"output": "x"})
    app = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
    assert app["config"]["output"] == "x"
    assert RunConfig.from_flower(app["config"]) == CONFIG


def test_flower_takes_the_app_and_installs_nothing_for_it(tmp_path):
    write_app(tmp_path, CONFIG.to_flower())
    config, warnings = load_and_validate(tmp_path / "pyproject.toml")
    assert warnings == []
    assert config["project"]["dependencies"] == []
    assert build_fab_from_disk(tmp_path)
