"""The app as it was: a legacy server with FedAvg."""
