"""`fda data check`, and a run of own data without options, as they are called."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from datasets.arrow_dataset import Dataset
from datasets.features import Image as Picture
from PIL import Image
from sites import write_images, write_sites, write_table

from fda_flower.cli import data
from fda_flower.datasets.federation import forget

WORDS = "words in every row"
ONE_HOT, MEAN = "--dataset-option categorical=onehot", "--dataset-option missing=mean"


def cells_of(out):
    """The cells of tables."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]


def refused(out):
    """What a run would refuse, without the remedies."""
    lines = [line.split(": ") for line in out.splitlines() if line.startswith("Refused")]
    return [kind for _, kind, *_ in lines]


def write(header, row, names=("north", "west"), count=20):
    """Tables of these domains, with a row for each number."""
    for name in names:
        Path(f"{name}.csv").write_text("\n".join([header, *map(row, range(count))]))


@pytest.mark.usefixtures("by_the_rule")
def test_check_shows_the_domains_and_the_command_that_runs_them(fda):
    write_sites(write_table, Path("my data"), ("north", "south", "west"), rows=80)
    given = ["--dataset-option", "label=label", "--target", "south", "--source-samples", "50%"]
    code, out, _ = fda("data", "check", "my data", *given, "--target-samples", "40", "--test-samples", "9")
    assert code == 0
    rows = cells_of(out)
    assert rows[0][:4] == ["north", "80", "32", "16"]
    assert rows[1][:4] == ["south (target)", "80", "40 + 24 unlabelled", "9"]
    assert "Inputs: 2 columns: age, height" in out
    assert "Warning: south: 9 test samples are too few to judge a model by" in out
    name, *command = shlex.split(out.splitlines()[-1])
    assert command[command.index("--method") + 1] == "ridge"
    code, out, _ = fda(*command, "--device", "cpu")
    assert (name, code) == ("fda", 0)
    assert "Sources: training samples of table: north 32, west 32" in out
    assert "Target: south, 40 labels of 64 training samples (--target-samples), 9 test samples" in out
    assert "Network: hinges, trains and sends 18 parameters, 0 kB (--train linear), for 2 features" in out


def test_check_takes_a_kind_of_data_in_any_case_and_refuses_another_with_its_nearest(fda):
    write_table(Path("north.csv"), 0)
    write_table(Path("south.csv"), 1)
    assert "--dataset table" in fda("data", "check", "--dataset", "Table")[1].splitlines()[-1]
    code, _, err = fda("data", "check", "--dataset", "Tables")
    assert (code, "'Tables' (did you mean 'table'?)" in err) == (2, True)


def test_check_tells_all_problems_at_once_and_ends_with_1(fda):
    changed = {2: ",1,0", 4: "4,tall,0", 5: "5,5,maybe"}
    write("age,height,label", lambda i: changed.get(i, f"{i},{i},{i % 2}"))
    code, out, _ = fda("data", "check", ".")
    assert (code, refused(out)) == (
        1,
        ["no value", "no number, or one too large", "a label that is not a whole number from 0 to 999"],
    )
    assert "\n  north.csv: age, line 4; 2 in all\n" in out
    details = out.split("All places:\n")[1].split("Refused")[0]
    assert details.count("    north.csv: ") == details.count("    west.csv: ") == 3
    assert "A run would" not in out


def test_check_tells_of_gaps_and_words_before_it_knows_the_label(fda):
    write("age,sex,ill", lambda i: f"{'' if i == 4 else i},{'fm'[i % 2]},{i % 2}")
    code, out, _ = fda("data", "check", ".")
    assert (code, refused(out)) == (
        1,
        ["the columns age, sex, ill", f"{WORDS} with a value at all sites", "no value"],
    )
    assert [row[:2] for row in cells_of(out)] == [["north", "20"], ["west (target)", "20"]]
    assert "leave it out by --dataset-option ignore=COLUMN" in out
    assert out.split("All places:")[1].split("Refused")[0].count(".csv: age, line 6") == 2
    (hint,) = [line for line in out.splitlines() if "fda.toml" in line]
    name, value = hint.split(": ")[1].split(" = ")
    Path("fda.toml").write_text(f'label = "ill"\ncategorical = "onehot"\n{name} = {value}\n')
    assert fda("data", "check", ".")[0] == 0


@pytest.mark.usefixtures("by_the_rule")
@pytest.mark.parametrize("domain", ["", "site"])
def test_words_and_gaps_need_one_line_and_the_command_with_both_options_passes(fda, domain):
    def row(i):
        return f"{i},{'fm'[i % 2]},{('', 'no', 'yes')[i % 3]},{'xy'[i % 7 % 2]},{'z' * (i != 4)},{i % 2}"

    write("age,sex,pain,ward,site code,label", row, ("north", "south", "west"), 60)
    if domain:
        text = [Path(f"{name}.csv").read_text().splitlines() for name in ("north", "south", "west")]
        rows = [f"{line},{i}" for i, lines in enumerate(text) for line in lines[1:]]
        Path("data").mkdir()
        Path("data/all.csv").write_text("\n".join([f"{text[0][0]},site", *rows]))
    given = ["data", "--dataset-option", "domain=site"] if domain else ["."]
    code, out, _ = fda("data", "check", *given)
    assert (code, refused(out)) == (1, [f"{WORDS} with a value at all sites", "no value"])
    words = "all sites: pain (2 different), sex (2), site code (1), ward (2): give "
    assert f"{words}{ONE_HOT} {MEAN}, as cells are empty, or leave them out by --dataset-option " in out
    assert "site code, line 6" in out
    *_, said, command = out.splitlines()
    assert said.startswith("Run it with the options that it needs (ridge, since ")
    code, out, error = fda(*shlex.split(command)[1:], "--rounds", "1", "--device", "cpu")
    assert code == 0, error


def test_columns_at_one_site_alone_are_left_out_by_the_command_that_passes(fda):
    write(
        "age,sex,gap,old,label",
        lambda i: f"{i},{'fm'[i % 2]},{i % 3 + 1},7{i},{i % 2}",
        ["north", "south"],
        60,
    )
    write("age,sex,gap,label", lambda i: f"{i}5,{'fm'[i % 2]},,{i % 2}", ["west"], 60)
    code, out, _ = fda("data", "check", ".", "--dataset-option", "ignore=old", "--target-samples", "all")
    assert code == 1
    command = out.splitlines()[-1]
    assert f"--dataset-option ignore=old,gap {ONE_HOT}" in command
    assert fda(*shlex.split(command)[1:], "--rounds", "1", "--device", "cpu")[0] == 0


def test_many_decimals_as_labels_are_predicted_by_the_command_that_passes(fda):
    write("age,sex,label", lambda i: f"{i},{'fm'[i % 2]},{i // 2 * 1.5 + 0.1}", count=60)
    command = fda("data", "check", ".", "--target-samples", "all")[1].splitlines()[-1]
    assert "--dataset-option task=regression" in command
    assert fda(*shlex.split(command)[1:], "--rounds", "1", "--device", "cpu")[0] == 0


def test_what_a_run_would_refuse_with_the_options_is_told_too(fda):
    write("age,sex,label", lambda i: f"{i},{'fm'[i % 2]},{i % 2}", count=60)
    code, out, _ = fda("data", "check", ".", "--target-samples", "50")
    assert (code, refused(out)) == (
        1,
        [f"{WORDS} at all sites", "target-samples is 50, but there are only 48"],
    )
    assert "With --dataset-option categorical=onehot, a run would still refuse:" in out


def test_each_column_of_names_is_told_and_no_other(fda):
    write("name,mail,sex,label", lambda i: f"a{i},b{i},{'fm'[i % 2]},{i % 2}", count=120)
    code, out, _ = fda("data", "check", ".", "--dataset-option", "categorical=onehot")
    assert (code, refused(out)) == (1, ["a word that tells rows apart"])
    assert [out.count(f" {name}, line 2") for name in ("mail", "name", "sex")] == [3, 2, 0]


def test_what_no_table_can_show_is_one_error_of_check_and_of_a_run(fda):
    for name in ("data/north", "data/west", "north"):
        write_table(Path(f"{name}.csv"), 0)
    code, out, _ = fda("data", "check", "data", "--target-samples", "65")
    assert (code, refused(out)) == (1, ["target-samples is 65, but there are only 32"])
    code, _, error = fda("data", "check", ".", "--dataset", "digits")
    assert (code, "'digits': choose one of hf, images, table" in error) == (2, True)
    Path("west.csv").touch()
    for command in (["data", "check", "."], ["run", "--dataset", "table", "--data-dir", "."]):
        for options, says in (([], "'west.csv'"), (["--dataset-option", "angle=abc"], "'angle'")):
            code, out, error = fda(*command, *options)
            assert code
            assert says in out + error
            assert "Traceback" not in out + error


@pytest.mark.usefixtures("by_the_rule")
def test_check_counts_patients_and_refuses_too_few_of_them_as_the_run_does(fda):
    write("patient,age,label", lambda i: f"p{i // 3:02},{i}.5,{i % 2}", count=60)
    given = ["--dataset-option", "group=patient", "--target-samples", "all"]
    code, out, _ = fda("data", "check", ".", *given)
    assert (code, cells_of(out)[0][:4]) == (
        0,
        ["north", "60 of 20 patients", "48 of 16 patients", "12 of 4 patients"],
    )
    assert "Warning: west: 12 test samples of 4 patients are too few to judge a model by" in out
    found = json.loads(fda("data", "check", ".", *given, "--json")[1])["domains"]["west"]
    assert (found["patients"], found["train-patients"], found["test-patients"]) == (20, 16, 4)
    write("patient,age,label", lambda i: f"p{i // 30:02},{i}.5,{i % 2}", ["west"], count=60)
    forget()
    code, out, _ = fda("data", "check", ".", *given)
    assert (code, len(refused(out))) == (1, 1)
    assert "1 patient" in out
    code, _, error = fda("run", "--dataset", "table", "--data-dir", ".", *given)
    assert code
    assert "1 patient" in error


def test_check_of_images(fda):
    write_sites(write_images, Path("data"), ("a", "b"))
    code, out, _ = fda("data", "check", "data", "--target-samples", "all")
    assert code == 0
    assert "Inputs: images of 8x8: 40; brought to 8x8, for the network cnn" in out
    damaged = [Path("data/a/ant/0.png"), Path("data/b/bee/1.png")]
    for path in damaged:
        path.write_text("damaged")
    code, out, _ = fda("data", "check", "data", "--dataset", "images")
    assert (code, "images of 8x8: 38;" in out) == (1, True)
    (kind,) = refused(out)
    assert kind.startswith("an image that is damaged")
    assert all(str(path) in out for path in damaged)
    assert "fda.toml" not in out
    assert [row[1:] for row in cells_of(out)] == [["20", "", "", "10", "10"]] * 2


def test_check_of_photos_names_the_extra_that_a_run_needs(fda, monkeypatch):
    write_sites(write_images, Path("photos"), "ab")
    for path in Path("photos").rglob("*.png"):
        Image.open(path).resize((64, 64)).save(path)
    monkeypatch.setattr("fda_flower.models.find_spec", lambda name: None)
    code, out, err = fda("data", "check", "photos")
    assert (code, "Run it" in out) == (1, False)
    assert "pip install 'fda-flower[images]'" in out + err


def test_many_classes_are_rows_of_a_table_of_their_own(fda):
    write("age,label", lambda i: f"{i},{i % 6}", ["a"], 60)
    write("age,label", lambda i: f"{i},{1 + i % 5}", ["b"], 60)
    code, out, _ = fda("data", "check", ".", "--target-samples", "all")
    assert code == 0
    domains = [[name, "60", "48", "12"] for name in ("a", "b (target)")]
    assert cells_of(out) == [*domains, ["0", "10", "0"], *([str(i), "10", "12"] for i in range(1, 6))]


def test_check_lists_no_more_damaged_files_than_can_be_read(fda, monkeypatch):
    monkeypatch.setattr(data, "MAX_FILES", 3)
    write_sites(write_images, Path("photos"), "ab")
    for number in range(5):
        Path(f"photos/b/bee/{number}.png").write_bytes(b"no image")
    code, out, _ = fda("data", "check", "photos")
    assert (code, len(refused(out))) == (1, 1)
    assert "bee/0.png; 5 in all" in out
    assert out.split("All places:")[1].split("Refused")[0].split() == [
        *["an", "image", "that", "is", "damaged,", "or", "of", "a", "kind", "that", "is", "not", "read"],
        *(f"photos/b/bee/{number}.png" for number in range(3)),
        *["and", "2", "more"],
    ]


def test_a_narrow_terminal_shows_all_in_tables_of_their_own(fda, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    names = ("north", "south", "a-hospital-with-a-long-name")
    write("age,height,label", lambda i: f"{i or ''},{i},{'class-' + 'ab'[i % 2] * 9}", names)
    code, out, _ = fda("data", "check", ".", "--dataset-option", "missing=mean", "--target-samples", "all")
    assert code == 0
    tables = out.split("Inputs")[0]
    assert max(map(len, tables.splitlines())) <= 60
    assert "\u2026" not in tables
    assert cells_of(out)[0][0] == "a-hospital-with-a-long-name"
    assert [row for row in cells_of(out) if row[0].startswith("class-")] == [
        [f"class-{letter * 9}", *counts] for counts in (["10", "10"], ["10"]) for letter in "ab"
    ]


@pytest.mark.usefixtures("by_the_rule")
def test_check_of_a_data_set_of_hugging_face_is_short_and_ends_with_the_command_that_runs_it(fda):
    rows = {"age": [float(i % 7) for i in range(60)], "sex": ["fm"[i % 2] for i in range(60)]}
    rows |= {"label": [i % 2 for i in range(60)], "site": ["abc"[i % 3] for i in range(60)]}
    Dataset.from_dict(rows).save_to_disk("saved")
    given = ["--dataset-option", "domain=site"]
    code, out, _ = fda("data", "check", "saved", *given)
    assert (code, refused(out)) == (1, [f"{WORDS} at all sites"])
    assert out.splitlines()[-1].endswith("categorical=onehot --data-dir saved --method ridge")
    code, out, _ = fda("data", "check", "saved", *given, "--dataset-option", "categorical=onehot")
    assert code == 0
    assert [row[0] for row in cells_of(out)] == ["a", "b", "c (target)"]
    name, *command = shlex.split(out.splitlines()[-1])
    assert command[command.index("--method") + 1] == "ridge"
    code, out, error = fda(*command, "--rounds", "1", "--device", "cpu")
    assert (name, code) == ("fda", 0), error
    assert "Sources: training samples of hf: a 16, b 16" in out


@pytest.mark.usefixtures("by_the_rule")
def test_check_takes_the_current_folder_and_recommends_ridge_for_images_of_hugging_face(fda):
    made: dict[str, Any] = {"image": [Image.new("RGB", (8, 8), (i, i, i)) for i in range(60)]}
    made |= {"label": [i % 2 for i in range(60)], "site": ["ab"[i // 2 % 2] for i in range(60)]}
    Dataset.from_dict(made).cast_column("image", Picture()).to_parquet("rows.parquet")
    code, out, error = fda("data", "check", "--dataset-option", "domain=site")
    assert code == 0, error
    assert "Inputs: images of 8x8: 60; brought to 8x8, for the network cnn" in out
    assert "--method ridge" in out.splitlines()[-1]


def test_compare_prints_who_has_what_and_what_it_does_not_claim(fda):
    write_sites(write_table, Path("data"), ("north", "south", "west"), rows=80)
    header, *rows = Path("data/south.csv").read_text().split()
    cells = [row.split(",") for row in rows]
    other = [",".join([age, str(100 + 20 * float(height)), label]) for age, height, label in cells]
    Path("data/south.csv").write_text("\n".join([header, *other]))
    code, out, _ = fda("data", "compare", "data", "--output", "said")
    *_, unsolved, patient, help, last = out.splitlines()
    assert code == 0
    assert "another unit?" in next(
        line for line in out.splitlines() if line.startswith("north (80) against south (80)")
    )
    assert "north (80) against west (80): no difference beyond chance" in out
    assert unsolved.startswith("Counts are of patients")
    assert "Not claimed: that none can be solved" in unsolved
    assert patient == "Two runs whose rows differ by one patient reveal that patient."
    assert help.startswith("Not claimed: who would help.")
    assert last.endswith("is measured, not guessed: fda run --method ridge --target all")
    assert {path.name for path in Path("said").iterdir()} == {"describe.json", "sites-alike.png"}
    code, out, _ = fda("data", "compare", "data", "--json", "--target", "west")
    said = json.loads(out)
    assert [pair["sites"] for pair in said["pairs"]] == [["north", "west"], ["south", "west"]]
