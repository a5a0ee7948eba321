from fda_flower.reporting.figures import COLORS, style


def test_seventy_seven_curves_differ_in_colour_or_marker():
    assert len({(style(i).color, style(i).marker) for i in range(77)}) == 77


def test_neighbours_differ_in_all_three():
    for i in range(100):
        one, other = style(i), style(i + 1)
        assert one.color != other.color
        assert one.marker != other.marker
        assert one.dash != other.dash


def test_no_colour_vanishes_on_white_or_on_dark():
    for color in COLORS:
        red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
        luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        assert 0.2 < luminance < 0.75, color
