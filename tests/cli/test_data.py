"""`fda data check`, and a run of own data without options, as they are called."""

import csv
import shlex
from pathlib import Path

import torch
from sites import write_images, write_table

from fda_flower import RunConfig
from fda_flower.client_app import at_node
from fda_flower.datasets import load_domain, load_federation
from fda_flower.site import SiteConfig


def cells_of(out):
    """The cells of tables."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]


def hospitals(folder: Path, label: str = "label") -> None:
    for i, name in enumerate(("north", "south", "west")):
        write_table(folder / f"{name}.csv", i, rows=80, columns=("age", "height"))
        path = folder / f"{name}.csv"
        path.write_text(path.read_text().replace("label", label, 1))


def test_check_shows_the_domains_and_the_command_that_runs_them(fda, tmp_path):
    hospitals(tmp_path / "my data", "ill")
    given = ["--dataset-option", "label=ill", "--target", "south", "--source-samples", "50%"]
    code, out, _ = fda("data", "check", "my data", *given, "--target-samples", "40", "--test-samples", "9")
    assert code == 0
    rows = cells_of(out)
    assert rows[0][:4] == ["north", "80", "32", "16"]
    assert rows[1][:4] == ["south (target)", "80", "40 + 24 unlabelled", "9"]
    assert "Inputs: 2 columns: age, height" in out
    assert "Warning: south: 9 test samples are too few to judge a model by" in out
    name, *command = shlex.split(out.splitlines()[-1])
    code, out, _ = fda(*command, "--rounds", "2", "--device", "cpu")
    assert (name, code) == ("fda", 0)
    assert "Sources: training samples of table: north 32, west 32" in out
    assert "Target: south, 40 labels of 64 training samples (--target-samples), 9 test samples" in out
    assert "Network: mlp, 322 parameters, for 2 features" in out
    assert "\nA round: " in out


def test_check_tells_all_problems_at_once_and_ends_with_1(fda, tmp_path):
    hospitals(tmp_path / "data")
    for name in ("north", "west"):
        path = tmp_path / "data" / f"{name}.csv"
        rows = list(csv.reader(path.read_text().splitlines()))
        rows[3][0], rows[5][1], rows[6][2] = "", "tall", "maybe"
        path.write_text("\n".join(",".join(row) for row in rows))
    code, out, _ = fda("data", "check", "data")
    assert code == 1
    assert [line.partition(": ")[2][:7] for line in out.splitlines() if line.startswith("Refused")] == [
        *("no valu", "no numb", "a label")
    ]
    assert out.count("  data/north.csv: ") == out.count("  data/west.csv: ") == 3
    assert "age, line 4" in out
    assert "A run would" not in out


def test_check_tells_of_gaps_and_words_before_it_knows_the_label(fda, tmp_path):
    for name in ("north", "west"):
        rows = [f"{'' if i == 4 else i},{'fm'[i % 2]},{i % 2}" for i in range(20)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,sex,ill", *rows]))
    code, out, _ = fda("data", "check", ".")
    assert code == 1
    cells = cells_of(out)
    assert [row[:2] for row in cells] == [["north", "20"], ["west (target)", "20"]]
    kinds = [line.removeprefix("Refused: ") for line in out.splitlines() if line.startswith("Refused")]
    assert [kind.partition(":")[0] for kind in kinds] == ["the columns age, sex, ill", "no value", "a word"]
    assert out.count(".csv: age, line 6") == 2


def test_each_column_of_too_many_words_is_told_and_no_other(fda, tmp_path):
    for name in ("north", "west"):
        rows = [f"a{i},b{i},{'fm'[i % 2]},{i % 2}" for i in range(120)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["name,mail,sex,label", *rows]))
    code, out, _ = fda("data", "check", ".", "--dataset-option", "categorical=onehot")
    kinds = [line for line in out.splitlines() if line.startswith("Refused")]
    assert (code, len(kinds)) == (1, 2)
    assert "column 'mail' of" in kinds[0]
    assert "column 'name' of" in kinds[1]


def test_what_no_table_can_show_is_one_error_of_check_and_of_a_run(fda, tmp_path):
    hospitals(tmp_path / "data")
    code, out, _ = fda("data", "check", "data", "--target-samples", "65")
    assert code == 1
    assert "Refused: target-samples is 65" in out
    write_table(tmp_path / "north.csv", 0)
    (tmp_path / "west.csv").touch()
    for command in (["data", "check", "."], ["run", "--dataset", "table", "--data-dir", "."]):
        for options, says in (
            ([], "'west.csv'"),
            (["--dataset-option", "angle=abc"], "'angle'"),
        ):
            code, out, error = fda(*command, *options)
            assert code
            assert says in out + error
            assert "Traceback" not in out + error
    code, _, error = fda("data", "check", ".", "--dataset", "digits")
    assert code == 2
    assert "'digits': choose one of images, table" in error


def test_check_of_images(fda, tmp_path):
    for i, name in enumerate(("a", "b")):
        write_images(tmp_path / "data" / name, i)
    code, out, _ = fda("data", "check", "data", "--target-samples", "all")
    assert code == 0
    assert "Inputs: images of 8x8: 40; brought to 8x8" in out
    (tmp_path / "data/a/ant/0.png").write_text("damaged")
    code, out, _ = fda("data", "check", "data", "--dataset", "images")
    assert code == 1
    assert "Refused: the image 'data/a/ant/0.png' is damaged" in out


def test_many_classes_are_rows_of_a_table_of_their_own(fda, tmp_path):
    for domain, classes in (("a", "012345"), ("b", "12345")):
        rows = "\n".join(f"{i},{classes[i % len(classes)]}" for i in range(60))
        (tmp_path / f"{domain}.csv").write_text(f"age,label\n{rows}\n")
    code, out, _ = fda("data", "check", str(tmp_path), "--target-samples", "all")
    assert code == 0
    assert cells_of(out) == [
        ["a", "60", "48", "12"],
        ["b (target)", "60", "48", "12"],
        ["0", "10", "0"],
        *[[str(label), "10", "12"] for label in range(1, 6)],
    ]


def test_own_data_at_sites_are_what_they_are_on_one_machine(tmp_path):
    """A site that is told categories and classes has the bits of the whole."""
    for name in ("north", "south"):
        rows = "\n".join(f"{i},{'fm'[i % 2]},{('ill', 'well')[i % 3 == 0]}" for i in range(40))
        (tmp_path / "all").mkdir(exist_ok=True)
        (tmp_path / "all" / f"{name}.csv").write_text(f"age,sex,label\n{rows}\n")
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.csv").write_text(f"age,sex,label\n{rows}\n")
    options = {"categories": "sex:f|m", "classes": "ill,well"}
    whole = RunConfig(
        dataset="table", data_dir=str(tmp_path / "all"), dataset_options=options, target_samples=8
    )
    server = RunConfig.from_flower({**whole.to_flower(), "data-dir": ""})
    assert server.model == "mlp"
    for name in ("north", "south"):
        site, domain = at_node(server, SiteConfig({"domain": name, "data-dir": str(tmp_path / name)}, 7))
        alone, together = load_domain(site.data, domain), load_federation(whole.data)
        assert alone.features == together.features == ("age", "sex=f", "sex=m")
        assert torch.equal(alone.domains[name].train.x, together.domains[name].train.x)
        assert torch.equal(alone.domains[name].train.y, together.domains[name].train.y)
