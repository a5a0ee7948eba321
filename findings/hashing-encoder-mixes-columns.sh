#!/usr/bin/env bash
# Guess: an encoder that hashes categories keeps columns apart: a smoker without diabetes is not encoded as a
# diabetic who does not smoke.
# What happens: only the value is hashed, not the column. Both have one 'yes' and one 'no', and so the same code,
# with any number of components. FeatureHasher of scikit-learn, which hashes 'column=value', keeps them apart.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile category-encoders==2.11.2 scikit-learn==1.9.1 pandas==2.3.3 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
category_encoders 2.11.2
8 components: alike True
4096 components: alike True
FeatureHasher: alike False
END
)
seen=$(bin/python - <<'PY'
import category_encoders
import pandas as pd
from sklearn.feature_extraction import FeatureHasher

patients = pd.DataFrame({"smoker": ["yes", "no"], "diabetic": ["no", "yes"]})
print("category_encoders", category_encoders.__version__)
for components in (8, 4096):
    encoder = category_encoders.HashingEncoder(n_components=components, max_process=1)
    first, second = encoder.fit_transform(patients).to_numpy()
    print(components, "components: alike", (first == second).all())
first, second = FeatureHasher(4096).transform(patients.to_dict("records")).toarray()
print("FeatureHasher: alike", (first == second).all())
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
