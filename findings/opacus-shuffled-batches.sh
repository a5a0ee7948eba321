#!/usr/bin/env bash
# Guess: with poisson_sampling=False, which deals shuffled batches, ε is another one than with Poisson's, or the
# engine says that its proof is for those alone.
# What happens: ε is the same to the digit, 6.66, and nothing is said of it. For batches of a fixed size, not even
# shuffled ones, dp-accounting's bound is 9.51, where a person is replaced.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile torch==2.13.0 opacus==1.6.0 dp-accounting==0.6.0
cd "$place"

expected=$(cat <<'END'
opacus 1.6.0
Poisson 6.66 warned: False
shuffled 6.66 warned: False
dp-accounting, fixed size: 9.51
END
)
seen=$(bin/python - <<'PY'
import warnings

import dp_accounting as dp
import opacus
import torch
from dp_accounting import rdp
from torch.utils.data import DataLoader, TensorDataset

patients = TensorDataset(torch.zeros(1000, 4), torch.zeros(1000, dtype=torch.long))
print("opacus", opacus.__version__)
for poisson in (True, False):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        network = torch.nn.Linear(4, 2)
        engine = opacus.PrivacyEngine(accountant="rdp")
        network, optimizer, batches = engine.make_private(
            module=network, optimizer=torch.optim.SGD(network.parameters(), 0.1), noise_multiplier=0.8,
            data_loader=DataLoader(patients, 50, shuffle=True), max_grad_norm=1.0, poisson_sampling=poisson,
        )
        for _ in range(5):
            for inputs, labels in batches:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(network(inputs), labels).backward()
                optimizer.step()
        epsilon = engine.get_epsilon(1e-5)
    words = [str(warning.message) for warning in caught]
    print("Poisson" if poisson else "shuffled", f"{epsilon:.2f}", "warned:", any("oisson" in text for text in words))
steps = dp.SelfComposedDpEvent(dp.SampledWithoutReplacementDpEvent(1000, 50, dp.GaussianDpEvent(0.8)), 100)
accountant = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
print("dp-accounting, fixed size:", f"{accountant.compose(steps).get_epsilon(1e-5):.2f}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
