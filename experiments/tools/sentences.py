"""Write the tables of `sentences.toml`: texts and their sentiment, from a folder with texts and scores.

    python experiments/tools/sentences.py FOLDER OUTPUT

FOLDER has `editorials.csv`, `films.csv`, `products.csv` and `tweets.csv` with the columns `text` and `score`,
the mean of raters' sentiment from -4 to 4: the files of Hutto and Gilbert (ICWSM 2014), from vaderSentiment's
repository. A sentence is positive from 0.5 on and negative up to -0.5; those in between are left out. Each
table has 2,000 sentences, drawn at random.
"""

import csv
import random
import sys
from pathlib import Path

DOMAINS = ("editorials", "films", "products", "tweets")
LEAST, ROWS = 0.5, 2000


def main(folder: Path, output: Path) -> None:
    """Write a file for each domain."""
    output.mkdir(parents=True, exist_ok=True)
    for domain in DOMAINS:
        with open(folder / f"{domain}.csv", encoding="utf-8", newline="") as file:
            rows = [(row["text"], float(row["score"])) for row in csv.DictReader(file)]
        told = [
            (text, "positive" if score > 0 else "negative") for text, score in rows if abs(score) >= LEAST
        ]
        with open(output / f"{domain}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "sentiment"), *random.Random(domain).sample(told, ROWS)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
