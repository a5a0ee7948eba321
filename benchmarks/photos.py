"""What a photo costs on its way to features with a site's own statistics, and in `fda data check`.

Photos are scikit-learn's two, cut, enlarged and with grain, as JPEG of 1500x2000 pixels and as PNG of 96x96,
at two sites. A new process runs a command, `fda run --method ridge` with the default network or `fda data
check`, on a few photos for its imports, on a few others, and on many others: the cost is the difference of
the last two, CPU milliseconds on one thread, divided by the photos. With ``FDA_BASE=CHECKOUT`` that
checkout's command runs in turns with this one's. Least of all turns.
Goals, over 2f2c51c5: JPEG with PyTorch 0.67 and with ONNX Runtime 0.40, PNG with ONNX Runtime 0.30, and the
check of a JPEG 0.25.
"""

import math
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from common import Process, base_checkout, cell, quick_asked, show, show_machine, verdict
from PIL import Image
from sklearn.datasets import load_sample_images

GRAIN = 6
"""Standard deviation of the grain, in levels."""
RUN = ("run", "--dataset", "images", "--method", "ridge", "--data-dir", "PHOTOS/FOLDER", "--output", "FOLDER")
CHECK = ("data", "check", "PHOTOS/FOLDER")
MISSING = {"PyTorch": "onnxruntime", "ONNX Runtime": ""}
"""By what computes the network, the package that is not there then."""
GOALS = (
    ("JPEG, file to features", "jpg", RUN, {"PyTorch": 0.67, "ONNX Runtime": 0.40}),
    ("PNG, file to features", "png", RUN, {"PyTorch": math.inf, "ONNX Runtime": 0.30}),
    ("JPEG, data check", "jpg", CHECK, {"": 0.25}),
)
"""What is done with photos, their kind, the command, and the goals by what computes the network."""
PROBE = """
import sys, time
missing, photos, *words = sys.argv[1:]
if missing:
    sys.modules[missing] = None
from fda_flower.cli import main

def seconds(folder):
    sys.argv = ["fda", *(word.replace("PHOTOS", photos).replace("FOLDER", folder) for word in words)]
    begun = time.process_time()
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    return time.process_time() - begun

seconds("first")
few = seconds("few")
print(seconds("many") - few)
"""


def main() -> None:
    quick = quick_asked(__doc__)
    show_machine()
    few, many, size = (3, 5, (200, 150)) if quick else (3, 16, (2000, 1500))
    with tempfile.TemporaryDirectory() as place:
        for kind, pixels in (("jpg", size), ("png", (96, 96))):
            for seed, (name, number) in enumerate((("first", few), ("few", few), ("many", many))):
                write_photos(Path(place, kind, name), number, kind, pixels, seed)
        show_milliseconds(Path(place), 4 * (many - few), 1 if quick else 5)


def write_photos(folder: Path, number: int, kind: str, size: tuple[int, int], seed: int) -> None:
    """Write photos of a number for each of two classes at each of two sites."""
    generator = np.random.default_rng(seed)
    grain = generator.normal(0, GRAIN, (size[1], size[0], 3)).astype(np.int16)
    for label, photo in enumerate(load_sample_images().images):
        height, width = (side // 2 for side in photo.shape[:2])
        for site in ("north", "south"):
            (folder / site / str(label)).mkdir(parents=True)
            for each in range(number):
                top, left = generator.integers(height), generator.integers(width)
                part = Image.fromarray(photo[top : top + height, left : left + width])
                enlarged = np.asarray(part.resize(size, Image.Resampling.BICUBIC), np.int16)
                pixels = enlarged + np.roll(grain, generator.integers(grain.size), axis=None)
                image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
                image.save(folder / site / str(label) / f"{each}.{kind}", quality=90)


def show_milliseconds(photos: Path, number: int, turns: int) -> None:
    """Print the one table; `number` is how many photos the cost is of."""
    rows = []
    for title, kind, words, goals in GOALS:
        goals = {engine: goal for engine, goal in goals.items() if not engine or find_spec("onnxruntime")}
        sides = {engine: probe(MISSING.get(engine, ""), photos / kind, words) for engine in goals}
        if (base := base_checkout()) is not None:
            sides["base"] = replace(next(iter(sides.values())), checkout=base)
        least = least_seconds(sides, turns)
        for engine, goal in goals.items():
            ratio = least[engine] / least["base"] if base else None
            judged = cell(ratio) if ratio is None or math.isinf(goal) else verdict(ratio, goal)
            costs = [1000 * least[side] / number if side in least else None for side in ("base", engine)]
            rows.append([f"{title} {engine}".rstrip(), *(cell(cost, ".1f") for cost in costs), judged])
    show("CPU milliseconds a photo", ["photo", "base", "now", "ratio"], rows)


def probe(missing: str, photos: Path, words: Sequence[str]) -> Process:
    """Return the process that measures a command."""
    return Process(("-c", PROBE, missing, str(photos), *words), environment={"FDA_CACHE_DIR": "."})


def least_seconds(sides: Mapping[str, Process], turns: int) -> dict[str, float]:
    """Run processes in turns, each in another order; return the least seconds that each has printed."""
    least = dict.fromkeys(sides, math.inf)
    for _ in range(turns):
        for name in random.sample(list(sides), len(sides)):
            least[name] = min(least[name], float(sides[name].cost().output.splitlines()[-1]))
    return least


if __name__ == "__main__":
    main()
