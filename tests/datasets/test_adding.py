"""The data set that docs/adding.md adds by one file and one line works as it says."""

import re
import types
from pathlib import Path

import torch

from fda_flower import run
from fda_flower.datasets import DATASETS, Dataset, load_federation

PAGE = Path(__file__).parents[2] / "docs" / "adding.md"


def test_the_example_runs(monkeypatch):
    text = PAGE.read_text(encoding="utf-8")
    (source,) = re.findall(r'```python\n("""scikit-learn.*?)```', text, re.DOTALL)
    (line,) = re.findall(r'```python\n    ("tumours": .*?),\n```', text, re.DOTALL)
    tumours = types.ModuleType("tumours")
    exec(source, tumours.__dict__)
    ((name, entry),) = eval("{" + line + "}", {"Dataset": Dataset, "tumours": tumours}).items()
    monkeypatch.setitem(DATASETS, name, entry)
    load_federation.cache_clear()

    result = run(
        dataset=name,
        dataset_options={"test_share": "0.5"},
        target="small",
        target_samples="20%",
        model="logistic",
        method="fedgp-auto",
        rounds=3,
    )

    federation = load_federation(result.config.data)
    assert list(federation.domains) == ["large", "small"]
    assert federation.target == "small"
    assert federation.shape == (30,)
    assert len(federation.domains["small"].train) == 28
    assert {len(domain.test) for domain in federation.domains.values()} == {142, 143}
    assert torch.isfinite(federation.domains["small"].train.x).all()
    assert result.accuracies[-1] > 50
