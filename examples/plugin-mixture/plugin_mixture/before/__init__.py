"""The app as it was: the template's FedAvg."""
