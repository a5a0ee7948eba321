#!/bin/bash
# The two tables of experiments/README.md, "Weights under a shift": bash experiments/tools/weights.sh DIR
# (DIR has Fashion-MNIST, Office-Caltech10 and PACS; seed 0; ten minutes on 2 cores). The accuracies are in
# the runs' summary.json; the weights are printed: first, middle and last round, mean over the sources.
set -e
pip install experiments/tools/board
data=$1

cell() {  # a name, then the settings
    for method in fedda-auto fedgp-auto feddaf "fedda-auto --method-option estimate_at=start" \
            source-only target-only mixture; do
        fda run --method $method "${@:2}" --output "runs/weights/$1: ${method/ --method-option / }"
    done
}
cell "digits, no shift" --shift rotate --shift-option angle=0 --shift-option invert=false
cell "digits, rotated and inverted" --shift rotate
rbf="--dataset rbf --model sigmoid --learning-rate 0.01"
cell "rbf, shift 0" $rbf --dataset-option shift=0
cell "rbf, shift 1" $rbf --dataset-option shift=1
fashion="--dataset fashion-mnist --data-dir $data --model lenet --source-samples 500"
fashion="$fashion --target-samples 100 --test-samples 2000"
cell "Fashion-MNIST, no noise" $fashion --shift noise --shift-option std=0
cell "Fashion-MNIST, noise 0.8" $fashion --shift noise --shift-option std=0.8
photos="--model efficientnet-lite0 --dataset-option image-size=96 --data-dir $data --target-batch-size 4"
cell "Office-Caltech10, features" --dataset office-caltech10 $photos --target webcam --target-samples 20%
cell "PACS, cartoon, features" --dataset pacs $photos --source-samples 25% --target cartoon --target-samples 35

python - runs/weights/*:\ fed* <<'END'
import json, sys
from pathlib import Path

for folder in map(Path, sys.argv[1:]):
    found = []
    for line in (folder / "rounds.jsonl").open():
        record = json.loads(line)
        betas = [source["beta"] for source in record["sources"].values() if "beta" in source]
        alpha = record["target"].get("alpha")  # FedDAF's; none in its first round
        found.append(sum(betas) / len(betas) if betas else alpha)
    found = [weight for weight in found if weight is not None]
    print(folder.name, *(f"{found[i]:.2f}" for i in (0, len(found) // 2, -1)))
END
