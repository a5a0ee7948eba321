#!/usr/bin/env bash
# Guess: a column of classes that is cast to another site's classes keeps its names, as a column of texts does, or
# the cast is refused, as concatenate_datasets refuses such tables.
# What happens: the numbers stay and the names are exchanged: where a site lists malignant first, all its malignant
# samples are benign after the cast that makes the tables fit. align_labels_with_mapping is right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile datasets==4.8.5
cd "$place"

expected=$(cat <<'END'
datasets 4.8.5
written ['malignant', 'malignant', 'benign'] read ['malignant', 'malignant', 'benign']
concatenated: refused
texts cast to our classes ['malignant', 'malignant', 'benign']
their classes cast to ours ['benign', 'benign', 'malignant']
align_labels_with_mapping ['malignant', 'malignant', 'benign']
END
)
seen=$(bin/python - <<'PY'
import datasets

datasets.disable_progress_bars()
print("datasets", datasets.__version__)
ours = datasets.Features({"label": datasets.ClassLabel(names=["benign", "malignant"])})
theirs = datasets.Features({"label": datasets.ClassLabel(names=["malignant", "benign"])})
names = ["malignant", "malignant", "benign"]
texts = datasets.Dataset.from_dict({"label": names})
site = texts.cast(theirs)


def classes(table):
    return table.features["label"].int2str(table["label"][:])


print("written", names, "read", classes(site))
try:
    datasets.concatenate_datasets([texts.cast(ours), site])
except ValueError:
    print("concatenated: refused")
print("texts cast to our classes", classes(texts.cast(ours)))
print("their classes cast to ours", classes(site.cast(ours)))
print("align_labels_with_mapping", classes(site.align_labels_with_mapping({"benign": 0, "malignant": 1}, "label")))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
