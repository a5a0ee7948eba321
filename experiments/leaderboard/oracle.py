"""The target alone with all its labels: a reference, not a method."""

ROW = {"label": "Oracle", "by": "fda-flower", "run": {"method": "oracle"}}
