"""What defines a run: its settings, its method, and what that needs; what it leaves."""

__all__: list[str] = []
