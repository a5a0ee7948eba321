"""Ridge with its defaults: one round, a linear layer in closed form on a frozen pretrained network."""

ROW = {"label": "Ridge", "by": "fda-flower", "run": {"method": "ridge"}}

ROW["figures"] = {
    "art_painting": {51038: 82.6829, 16351: 79.7561, 35715: 82.1951, 29068: 83.4146, 30141: 77.0732},
    "cartoon": {51038: 73.5608, 16351: 81.6631, 35715: 79.9574, 29068: 76.3326, 30141: 75.9062},
    "photo": {51038: 96.3964, 16351: 97.5976, 35715: 92.7928, 29068: 97.5976, 30141: 96.997},
    "sketch": {51038: 60.4326, 16351: 57.7608, 35715: 66.9211, 29068: 61.3232, 30141: 64.8855},
    "release": "0.1.0",
    "date": "2026-11-30",
    "images": "67322dc5",
}
