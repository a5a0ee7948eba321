"""FedGP with auto-weighting (Jiang et al., ICLR 2024) and its defaults."""

ROW = {"label": "FedGP_Auto", "by": "fda-flower", "run": {"method": "fedgp-auto"}}
