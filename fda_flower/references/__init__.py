"""Yardsticks: methods with all data in one place, and Flower's own strategies."""

__all__: list[str] = []
