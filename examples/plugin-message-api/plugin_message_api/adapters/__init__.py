"""The app with a frozen network: only adapters and the head are trained and sent."""
