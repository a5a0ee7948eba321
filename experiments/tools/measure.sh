#!/bin/bash
# The experiments of results/, cut down as there: bash experiments/tools/measure.sh DIR
# (DIR is the folder of the data sets, with the board's sentences in DIR/sentences; days on 2 cores: 4 hours for
# the board, at most an hour for most. Run it again to continue.)
set -e
pip install 'experiments/tools/board[tables]' experiments/tools/cifar10_subset
DIR=$1
python -m fda_board.tables "$DIR"
fda experiment board_tables --data-dir "$DIR/tables"
python -m fda_board.analysts "$DIR/tables" runs/board_tables

for name in board board_ridge board_ridge_kinds board_short fashion_mnist_noise fed_heart colored_mnist_small single_colored_mnist_small \
    private private_patients private_training poisoned_fashion_mnist pacs_small pacs_parts pacs_pretrained \
    office_caltech10_small office_caltech10_pretrained feddaf_domains head_to_head buffers; do
    fda experiment "$name" --data-dir "$DIR"
done
for row in "Source Only" FedAvg "Target Only" "FedAvg FT" FedDA_Auto FedGP_Auto FedDAF Ridge; do
    fda experiment board_check --data-dir "$DIR" --only "$row"
done
for cell in "Fed-Heart, va" "Fed-Heart, cleveland"; do
    fda experiment board_check --data-dir "$DIR" --only Mixture --only "$cell"
done
for row in "Target Only" FedDA_0.5 FedGP_0.5 FedDA_Auto FedGP_Auto; do
    fda experiment fashion_mnist_noise --data-dir "$DIR" --only 0.4 --only "$row" --seeds 5
done
fda experiment beta_fashion_mnist --data-dir "$DIR" --rounds 20 --only 0 --only 0.5 --only 1  # are in fashion_mnist_noise, too
fda experiment beta_fashion_mnist --data-dir "$DIR" --rounds 20 --only 0.2 --only 0.4 --only 0.6 --only 0.8 --seeds 1
fda experiment beta_fashion_mnist --data-dir "$DIR" --rounds 20 --only FedDA --only 0.2 --only 0.4 --only 0.6 --seeds 1-1
fda experiment ablation_fashion_mnist --data-dir "$DIR" --rounds 20 --only N/A --only FedGP  # also there
fda experiment ablation_fashion_mnist --data-dir "$DIR" --rounds 20 --only "w proj" --seeds 2
fda experiment fashion_mnist_label --data-dir "$DIR" --seeds 1
fda experiment source_labels --data-dir "$DIR" --seeds 1 --set source-samples=1000
fda experiment target_samples_fashion_mnist --data-dir "$DIR" --seeds 1 --set source-samples=1000 --set warmup-rounds=12
fda experiment target_samples_cifar10 --data-dir "$DIR" --seeds 1 --set dataset=cifar-10-subset
fda experiment beta_cifar10 --data-dir "$DIR" --only 0 --only 0.2 --only 0.4 --only 0.6 --only 0.8 --only 1 --set dataset=cifar-10-subset
fda experiment ablation_cifar10 --data-dir "$DIR" --seeds 2 --set dataset=cifar-10-subset
fda experiment cifar10_noise --data-dir "$DIR" --seeds 1 --only 0.2 --only 0.4 --set dataset=cifar-10-subset
fda experiment feddaf_cifar10 --data-dir "$DIR" --set dataset=cifar-10-subset
fda experiment feddaf_mu --data-dir "$DIR" --set dataset=cifar-10-subset
fda experiment feddaf_cifar10_code --data-dir "$DIR" --set dataset=cifar-10-subset
fda experiment beta_colored_mnist --data-dir "$DIR" --rounds 20 --seeds 3 --set model=lenet --set source-samples=10% \
    --set target-learning-rate=0.001 --set target-batch-size=2
fda experiment poisoned --seeds 2
fda experiment poisoned --only "3 of 9"  # its third seed
fda experiment poisoned_adaptive --seeds 2
fda experiment synthetic_small
fda experiment sentences --data-dir "$DIR/sentences" --seeds 3
