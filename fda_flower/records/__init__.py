"""What a run writes: its records, its folder, and whether that is as the run has left it."""

__all__: list[str] = []
