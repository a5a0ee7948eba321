#!/usr/bin/env bash
# Guess: the frequency of alternative alleles in a VCF file is their share of the called ones, in any package, also on a
# man's single X chromosome, and where a patient has two different alternatives.
# What happens: cyvcf2's aaf counts genotypes: a man's one X counts as two, so that two hospitals with other shares of men
# differ, and a patient with two different alternatives counts as half reference. scikit-allel counts right, but its
# is_called says that a man's X is not called: a filter by it removes all men. Nothing is said.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile \
    cyvcf2==0.34.0 scikit-allel==1.3.13 numpy==2.3.5
cd "$place"

expected=$(cat <<'END'
cyvcf2 0.34.0, scikit-allel 1.3.13
women 0/1 and 0/0, men 1 and 1: cyvcf2 0.625, scikit-allel 0.500 of 6, called 2 of 4
women 0/1 and 0/1, men 0 and 0: cyvcf2 0.250, scikit-allel 0.333 of 6, called 2 of 4
1/2, 0/0, 0/0, 0/0: cyvcf2 0.125, scikit-allel 0.250 of 8, called 4 of 4
1/2, 1/2, 1/2, 1/2: cyvcf2 0.500, scikit-allel 1.000 of 8, called 4 of 4
END
)
seen=$(bin/python -W ignore - <<'PY'
from importlib.metadata import version

import allel
import cyvcf2
import numpy as np

HEADER = """##fileformat=VCFv4.2
##contig=<ID=1>
##contig=<ID=X>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
#CHROM POS ID REF ALT QUAL FILTER INFO FORMAT a b c d
"""
# Two women and two men on X; then four patients on chromosome 1.
CASES = (
    ("women 0/1 and 0/0, men 1 and 1", "X", "C", "0/1 0/0 1 1"),
    ("women 0/1 and 0/1, men 0 and 0", "X", "C", "0/1 0/1 0 0"),
    ("1/2, 0/0, 0/0, 0/0", "1", "C,G", "1/2 0/0 0/0 0/0"),
    ("1/2, 1/2, 1/2, 1/2", "1", "C,G", "1/2 1/2 1/2 1/2"),
)
print(f"cyvcf2 {version('cyvcf2')}, scikit-allel {version('scikit-allel')}")
lines = [f"{chromosome} {n} . A {alt} . PASS . GT {calls}" for n, (_, chromosome, alt, calls) in enumerate(CASES, 1)]
with open("calls.vcf", "w") as file:
    file.write((HEADER + "\n".join(lines)).replace(" ", "\t") + "\n")
genotypes = allel.GenotypeArray(allel.read_vcf("calls.vcf", fields=["calldata/GT"])["calldata/GT"])
counts = np.asarray(genotypes.count_alleles())
for (name, *_), variant, count, called in zip(CASES, cyvcf2.VCF("calls.vcf"), counts, genotypes.is_called()):
    share = 1 - count[0] / count.sum()
    print(f"{name}: cyvcf2 {variant.aaf:.3f}, scikit-allel {share:.3f} of {count.sum()}, called {called.sum()} of 4")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
