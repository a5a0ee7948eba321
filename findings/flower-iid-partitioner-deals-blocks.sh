#!/usr/bin/env bash
# Guess: IidPartitioner deals samples at random, so that each client has all classes.
# What happens: it cuts the data set into blocks in its order. A data set that is sorted by class, as many are,
# gives each client a single class; only FederatedDataset shuffles first, not a partitioner whose data set is
# assigned.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr-datasets==0.6.1
cd "$place"

expected=$(cat <<'END'
flwr-datasets 0.6.1
sorted [[0], [1], [2], [3], [4]]
mixed [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
END
)
seen=$(bin/python - <<'PY'
from importlib.metadata import version

from datasets import Dataset
from flwr_datasets.partitioner import IidPartitioner

print("flwr-datasets", version("flwr-datasets"))
for name, labels in (("sorted", sorted(i % 5 for i in range(100))), ("mixed", [i % 5 for i in range(100)])):
    partitioner = IidPartitioner(num_partitions=5)
    partitioner.dataset = Dataset.from_dict({"label": labels})
    print(name, [sorted(set(partitioner.load_partition(i)["label"])) for i in range(5)])
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
