"""The target alone trains the head of the network on its 35 labels."""

ROW = {"label": "Target Only", "by": "fda-flower", "run": {"method": "target-only"}}
