"""FedAvg with its defaults."""

ROW = {"label": "FedAvg", "by": "fda-flower", "run": {"method": "fedavg"}}
