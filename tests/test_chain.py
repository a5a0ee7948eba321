"""The chain of a run's rounds by itself."""

import json

import pytest

from fda_flower.chain import Chain, read_chain, text_hash

RUN = {"method": "fedgp", "seed": 0}
LINES = [
    json.dumps({"round": n, "target": {"domain": "t"}, "sources": {"a": {}, "b": {}}}) for n in (1, 2, 3)
]


def made():
    chain = Chain(RUN)
    for number, line in enumerate(LINES, 1):
        chain.add(line, f"model {number}", {"model.safetensors": f"file {number}"})
    return chain


def test_a_link_says_who_took_part_and_stands_on_the_one_before():
    first, second, third = made().links
    assert (second.round, second.target, second.sources) == (2, "t", ("a", "b"))
    assert (second.record, second.model) == (text_hash(LINES[1]), "model 2")
    assert (second.before, third.before) == (first.hash, second.hash)
    assert first.before == Chain(dict(reversed(RUN.items()))).last
    assert first.before != Chain({**RUN, "seed": 1}).last


def test_a_round_without_replies_has_a_link_too():
    link = Chain(RUN).add('{"round": 1, "target": null, "sources": {}}', "model")
    assert (link.target, link.sources) == (None, ())


def test_a_chain_is_what_its_text_says():
    chain = made()
    found, problems = read_chain(chain.to_text(), RUN)
    assert (found.links, found.last, problems) == (chain.links, chain.last, [])
    assert found.rounds == 3
    assert chain.problems(LINES) == []
    assert read_chain("", RUN)[0].rounds == 0


def test_each_character_of_each_link_counts():
    text = made().to_text()
    for place in range(0, len(text), 7):
        if text[place] == "\n":
            continue
        changed = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
        found, problems = read_chain(changed, RUN)
        # A space more or less between two entries is the same link.
        assert problems or found.problems(LINES) or found.links == made().links


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([LINES[0], LINES[1].replace("a", "c"), LINES[2]], ["the record of round 2 has changed"]),
        ([LINES[1], LINES[0], LINES[2]], ["the record of round 1 has", "the record of round 2 has"]),
        ([LINES[0], LINES[2]], ["the record of round 2 has", "round 3 is missing"]),
        (LINES[:2], ["round 3 is missing in rounds.jsonl"]),
        ([*LINES, '{"round": 4}'], ["round 4 has no link"]),
        ([], ["round 1 is", "round 2 is", "round 3 is"]),
    ],
)
def test_records_that_are_not_those_of_the_chain_are_found(lines, says):
    found = made().problems(lines)
    assert len(found) == len(says)
    assert all(text.startswith(begin) for text, begin in zip(found, says, strict=True))


def test_links_that_are_taken_out_swapped_or_of_another_run_are_found():
    text = made().to_text().splitlines(keepends=True)
    for lines, number in (
        ([text[0], text[2]], 3),
        ([text[1], text[2]], 2),
        ([text[0], text[2], text[1]], 3),
    ):
        found, problems = read_chain("".join(lines), RUN)
        assert problems == []
        assert f"the link of round {number} does not follow the one before it" in found.problems(LINES)
    other = read_chain("".join(text), {**RUN, "seed": 1})[0]
    assert other.problems(LINES) == ["the link of round 1 does not follow the one before it"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"hash": "x"}', '{"round": 3, "hash": 3}'])
def test_a_damaged_line_ends_the_chain(damage):
    text = made().to_text().splitlines(keepends=True)
    found, problems = read_chain(f"{text[0]}{damage}\n{text[2]}", RUN)
    assert found.rounds == 1
    assert problems[0].startswith("line 2 of the chain has changed")


def test_a_record_that_is_written_anew_gets_a_second_link_and_no_other_does():
    chain, before = made(), made().last
    chain.cover(LINES, {})
    assert chain.last == before
    new = LINES[2].replace('"b"', '"c"')
    chain.cover([*LINES[:2], new], {})
    assert [link.note for link in chain.links] == ["", "", "", "rewritten"]
    again = chain.links[-1]
    assert (again.round, again.model, again.files) == (3, "model 3", {"model.safetensors": "file 3"})
    assert chain.problems([*LINES[:2], new]) == []
    # A run that was stopped between the two files still has the line before.
    assert chain.problems(LINES) == ["the record of round 3 has changed"]
    assert chain.problems(LINES, going_on=True) == []
    assert chain.up_to(2).last == chain.links[1].hash
    assert chain.up_to(2).problems(LINES[:2]) == []


def test_other_files_after_the_last_round_get_a_link_of_their_own():
    chain = made()
    for config, links in (("one", 4), ("one", 4), ("two", 5)):
        chain.cover(LINES, {"config.json": config})
        assert len(chain.links) == links
        files = {"model.safetensors": "file 3", "config.json": config}
        assert (chain.links[-1].round, chain.links[-1].files) == (3, files)
    assert chain.problems(LINES) == []


def test_rounds_of_an_older_version_get_late_links():
    chain = Chain(RUN)
    chain.cover(LINES[:2], {"config.json": "one"})
    assert chain.links[-1].files == {"config.json": "one"}
    chain.add(LINES[2], "model 3")
    assert [(link.round, link.model, link.note) for link in chain.links] == [
        *((1, None, "late"), (2, None, "late"), (3, "model 3", ""))
    ]
    assert chain.problems(LINES) == []
