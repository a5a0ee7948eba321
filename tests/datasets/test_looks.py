"""How images are looked at follows from options, which are read whole."""

import pytest
from naming import names

from fda_flower.datasets.looks import EACH, MOST, Look, LookOptions, Window
from fda_flower.errors import ConfigError


def test_options_are_read():
    look = LookOptions(depth="12", window="40, 400", frame="all", slice="coronal:7").look(16)
    assert look == Look(12, Window(40, 400), EACH, 1, 7)
    assert LookOptions(frame=3).look(10) == Look(10, frame=3)
    assert LookOptions().look() == Look(MOST)
    assert Look.read(slice="axial:middle") == Look(axis=2)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        *(("window", text) for text in ("40", "40,1", "nan,400", "40,inf", "a,b", "1,2,3")),
        *(("frame", text) for text in ("0", "-1", "1.5", "middle", "9" * 20)),
        *(("slice", text) for text in ("axial", "axial:0", "x:1", "axial:all", "middle")),
    ],
)
def test_other_options_are_refused(option, text):
    with pytest.raises(ConfigError, check=names(f"option '{option}'", text)):
        LookOptions(**{option: text}).look()
