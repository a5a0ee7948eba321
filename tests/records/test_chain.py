"""The hash chain over the lines of a run."""

import json

import pytest

from fda_flower.records.chain import CHAIN, hash_of, linked, read_links, without_link

RUN = {"method": "fedgp", "seed": 0}
RECORDS = [
    {"round": n, "loss": 1e-300 / n, "sources": {"ä": {"norm": None}, "b": {1: 2, 10: 3}}} for n in (1, 2, 3)
]


def made(records=RECORDS, run=RUN):
    """The lines of records."""
    lines, last = [], hash_of(run)
    for record in records:
        line = linked(record, last, {"model.safetensors": f"file {record['round']}"})
        last = line[CHAIN]["hash"]
        lines.append(json.dumps(line))
    return lines


def test_each_line_stands_on_the_one_before_and_the_first_on_the_run():
    links, problems = read_links(made(), RUN)
    assert problems == []
    first, second, third = links
    assert (second.round, second.files) == (2, {"model.safetensors": "file 2"})
    assert (first.before, second.before, third.before) == (hash_of(RUN), first.hash, second.hash)
    assert hash_of(RUN) == hash_of(dict(reversed(RUN.items()))) != hash_of({**RUN, "seed": 1})
    assert read_links([], RUN) == ([], [])
    assert [without_link(json.loads(line)) for line in made()] == json.loads(json.dumps(RECORDS))


def test_each_character_of_each_line_counts():
    text = "\n".join(made())
    for place in range(0, len(text), 7):
        if text[place] != "\n":
            changed = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
            assert read_links(changed.split("\n"), RUN)[1], place


@pytest.mark.parametrize(
    ("before", "after"),
    [('"round": 2, ', '"round": 2, "loss": 0.0, '), ('"round": 2, ', '"round":  2, ')],
    ids=["a field that is there twice", "a space more"],
)
def test_a_line_that_means_the_same_in_other_words_has_changed(before, after):
    lines = made()
    lines[1] = lines[1].replace(before, after, 1)
    assert read_links(lines, RUN)[1] == ["the record of round 2 has changed"]


@pytest.mark.parametrize(
    ("order", "rounds"), [([0, 2], [3]), ([1, 2], [2]), ([0, 2, 1], [3, 2]), ([0, 1, 1, 2], [2])]
)
def test_lines_that_are_taken_out_swapped_or_there_twice_are_found(order, rounds):
    lines = made()
    problems = read_links([lines[i] for i in order], RUN)[1]
    assert all("does not follow the one before it" in problem for problem in problems)
    assert [f"round {number} " in " ".join(problems) for number in rounds] == [True] * len(rounds)


def test_records_of_another_run_are_found():
    (problem,) = read_links(made(), {**RUN, "seed": 1})[1]
    assert "round 1 does not follow" in problem


@pytest.mark.parametrize(
    "damage",
    [
        *("", "{", "[]", "5", "[" * 100_000, '{"round": 2}', '{"chain": 3}', '{"chain": {"hash": "x"}}'),
        '{"round": 2, "chain": {"before": "", "files": 5, "hash": ""}}',
    ],
)
def test_a_line_that_is_damaged_or_has_no_link_ends_the_chain(damage):
    lines = made()
    links, problems = read_links([lines[0], damage, lines[2]], RUN)
    assert [link.round for link in links] == [1]
    (problem,) = problems
    assert problem.startswith("line 2 of rounds.jsonl")
