#!/usr/bin/env bash
# Guess: a genotype that was not called is missing, or marked, in the counts of the variant's allele.
# What happens: to_n_alt counts it as 0, as a person with two copies of the reference. The mean over a cohort, or a
# patient's genetic score, falls with the share of missing genotypes, which differs by the array of a site. fill=-1
# marks them.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile scikit-allel==1.3.13 numpy==1.26.4
cd "$place"

expected=$(cat <<'END'
scikit-allel 1.3.13
called [True, True, True, False, False]
to_n_alt [2, 2, 1, 0, 0] mean 1.0
without the missing: mean 1.67
fill=-1 [2, 2, 1, -1, -1]
END
)
seen=$(bin/python - <<'PY'
import allel
import numpy as np

genotypes = allel.GenotypeArray([[[1, 1], [1, 1], [0, 1], [-1, -1], [-1, -1]]])
counts, called = genotypes.to_n_alt()[0], genotypes.is_called()[0]
print("scikit-allel", allel.__version__)
print("called", called.tolist())
print("to_n_alt", counts.tolist(), "mean", float(counts.mean()))
print("without the missing: mean", round(float(counts[called].mean()), 2))
print("fill=-1", genotypes.to_n_alt(fill=-1)[0].tolist())
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
