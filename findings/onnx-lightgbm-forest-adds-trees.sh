#!/usr/bin/env bash
# Guess: a random forest of LightGBM (boosting_type="rf") answers in ONNX as it does in LightGBM, as its boosted trees
# do, or the export is refused.
# What happens: the trees are added, and a regressor's sum is divided by 100, whatever their number: of 20 trees a blood
# pressure of 120 is 24, or 2,400 where the booster is exported. Each risk is near 0 or 1, and every other patient has
# another class. Nothing is said.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile onnxmltools==1.16.0 skl2onnx==1.20.0 onnx==1.23.2 onnxruntime==1.31.1 lightgbm==4.7.0 scikit-learn==1.9.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
onnxmltools 1.16.0 lightgbm 4.7.0
gbdt, 20 trees: mean pressure 120, in ONNX 120, of the booster 120
  risks are off by up to 0.0, another class 0%
gbdt, 100 trees: mean pressure 120, in ONNX 120, of the booster 120
  risks are off by up to 0.0, another class 0%
rf, 20 trees: mean pressure 120, in ONNX 24, of the booster 2398
  risks are off by up to 0.9, another class 51%
rf, 100 trees: mean pressure 120, in ONNX 120, of the booster 11990
  risks are off by up to 0.9, another class 50%
END
)
seen=$(bin/python - <<'PY'
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore")
import lightgbm as lgb  # noqa: E402
import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
from onnxmltools import convert_lightgbm  # noqa: E402
from onnxmltools.convert.common.data_types import FloatTensorType  # noqa: E402

random = np.random.default_rng(0)
table = random.normal(size=(800, 4)).astype(np.float32)
pressures = 120 + 10 * table[:, 0]
ill = (table[:, 0] + 0.5 * table[:, 1] + 0.5 * random.normal(size=800) > 0).astype(int)


def exported(model, **settings):
    graph = convert_lightgbm(model, initial_types=[("rows", FloatTensorType([None, 4]))], **settings)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options)
    return session.run(None, {"rows": table})


print("onnxmltools", version("onnxmltools"), "lightgbm", version("lightgbm"))
for kind in ("gbdt", "rf"):
    for trees in (20, 100):
        settings = {"boosting_type": kind, "n_estimators": trees, "bagging_freq": 1, "bagging_fraction": 0.5}
        settings |= {"n_jobs": 1, "verbose": -1, "deterministic": True, "force_row_wise": True}
        pressure = lgb.LGBMRegressor(**settings).fit(table, pressures)
        risk = lgb.LGBMClassifier(**settings).fit(table, ill)
        means = pressure.predict(table), exported(pressure)[0], exported(pressure.booster_)[0]
        classes, risks = exported(risk, zipmap=False)
        here, there, booster = (f"{mean.mean():.0f}" for mean in means)
        print(f"{kind}, {trees} trees: mean pressure {here}, in ONNX {there}, of the booster {booster}")
        furthest = np.abs(risks - risk.predict_proba(table)).max()
        print(f"  risks are off by up to {furthest:.1f}, another class {np.mean(classes != risk.predict(table)):.0%}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
