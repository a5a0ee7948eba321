"""Names of records, settings, metrics and properties that only one method, or one family, uses."""

SOURCES, PATHS, SOLUTION = "sources", "paths", "solution"
SHARE, SOURCE_WEIGHT, WEIGHT, TEMPERATURE = "share", "source-weight", "weight", "temperature"
HELD_OUT, FEWEST = "held-out", "fewest-labels"
TARGET_ALONE, SOURCES_ALONE = f"{HELD_OUT}-target", f"{HELD_OUT}-sources"
"""Ridge's record with the total for the target, the setting that selects the heads to average, and an array;
metrics of the target's reply."""

REPORT = "report"
TOTAL, KEPT = "total", "kept"
ALONE, TOGETHER, LOW, HIGH = "alone", "with-others", "gain-low", "gain-high"
"""The same if every site is a target: the record with the total of all sites; and metrics: whether the site
has kept its head, figures without and with the others, and the interval of the difference. `REPORT` says
whether a site reports figures."""
