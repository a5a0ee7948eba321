"""Mixture with its defaults: the sources' model and the target's own, mixed on the target."""

ROW = {"label": "Mixture", "by": "fda-flower", "run": {"method": "mixture"}}
