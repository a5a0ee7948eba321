"""Seeds depend on their purpose, and on nothing else."""

from itertools import product

import torch

from fda_flower.files import derive_seed


def test_a_seed_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert derive_seed(0, "split") == 8764376260289002719
    assert derive_seed(0, "train", 1, "target") == 1772028768404566843


def test_a_seed_fits_63_bits_and_torch_takes_it() -> None:
    seeds = [derive_seed(i) for i in range(2000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**62
    assert sum(seed % 2 for seed in seeds) / 2000 > 0.45
    for seed in seeds[:10]:
        torch.Generator().manual_seed(seed)


def test_every_purpose_has_a_seed_of_its_own() -> None:
    purposes = list(product(range(20), ("train", "test"), range(50), ("source-1", "source-2", "target")))
    assert len({derive_seed(*purpose) for purpose in purposes}) == len(purposes)


def test_neither_order_nor_grouping_nor_type_of_the_parts_is_lost() -> None:
    variants = [(1, 2), (2, 1), (12,), ("1", "2"), ("1, 2",), ("12",), (1, "2"), (1, 2, None), (1, (2,)), ()]
    assert len({derive_seed(*parts) for parts in variants}) == len(variants)


def test_a_negative_seed_works() -> None:
    assert derive_seed(-1) != derive_seed(1)


def test_the_global_random_state_is_not_used() -> None:
    before = torch.get_rng_state()
    derive_seed(0, "a")
    assert torch.equal(torch.get_rng_state(), before)
