"""Packages of others, with entry points."""

import tomllib


def install(folder, modules, entry_points, name="clinics"):
    """A package as pip installs it: its modules, and metadata with the entry points of its pyproject.toml."""
    (folder / name).mkdir(parents=True)
    for module, source in {"__init__": "", **modules}.items():
        (folder / name / f"{module}.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{name}-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    groups = tomllib.loads(entry_points)["project"]["entry-points"]
    lines = [
        line
        for group, points in groups.items()
        for line in [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder
