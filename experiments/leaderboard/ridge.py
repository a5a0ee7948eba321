"""Ridge with its defaults: one round, a linear layer in closed form on a frozen pretrained network."""

ROW = {"label": "Ridge", "by": "fda-flower", "run": {"method": "ridge"}}
