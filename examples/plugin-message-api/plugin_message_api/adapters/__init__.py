"""The app with a frozen network, of which only adapters and the head are trained and sent."""
