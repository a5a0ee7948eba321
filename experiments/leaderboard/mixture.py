"""Mixture with its defaults: the sources' model and the target's own, mixed on the target."""

ROW = {"label": "Mixture", "by": "fda-flower", "run": {"method": "mixture"}}

ROW["figures"] = {
    "art_painting": {51038: 77.561, 16351: 73.6585, 35715: 73.9024, 29068: 80.2439, 30141: 71.7073},
    "cartoon": {51038: 68.2303, 16351: 73.774, 35715: 72.7079, 29068: 71.4286, 30141: 69.5096},
    "photo": {51038: 95.4955, 16351: 95.7958, 35715: 92.1922, 29068: 94.5946, 30141: 93.3934},
    "sketch": {51038: 55.2163, 16351: 55.0891, 35715: 55.8524, 29068: 58.6514, 30141: 60.3053},
    "release": "0.1.0",
    "date": "2026-11-30",
    "images": "67322dc5",
}
