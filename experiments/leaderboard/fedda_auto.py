"""FedDA with auto-weighting (Jiang et al., ICLR 2024) and its defaults."""

ROW = {"label": "FedDA_Auto", "by": "fda-flower", "run": {"method": "fedda-auto"}}
