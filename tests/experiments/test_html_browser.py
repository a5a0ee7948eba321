"""The HTML report in a real browser without a window: no error, no network, and what a click does."""

import json
import shutil

import pytest
from run_folders import make_run, records

from fda_flower.experiments.pages import write_html

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="needs Debian's packages chromium and chromium-driver"
    ),
]

ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=1200,1600",
)


@pytest.fixture
def browser(tmp_path):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def page(tmp_path, pictures):
    """The page of a comparison of three methods."""
    accuracies = {"fedavg": 0.9, "target-only": 0.7, "fedda-auto": 0.8}
    for method, accuracy in accuracies.items():
        for seed in (0, 1):
            folder = make_run(tmp_path / "compare" / f"{method}-seed{seed}", method=method, seed=seed)
            lines = [json.dumps(record) + "\n" for record in records(3, accuracy + seed / 100)]
            (folder / "rounds.jsonl").write_text("".join(lines))
    write_html([tmp_path / "compare"], tmp_path / "report.html")
    return (tmp_path / "report.html").as_uri()


def first_column(browser):
    code = "return Array.from(document.querySelector('table').tBodies[0].rows, row => row.cells[0].innerText)"
    return browser.execute_script(code)


def charts(browser):
    """The words of the charts that are shown."""
    code = """
        return Array.from(document.querySelectorAll('.chart:not([hidden]) svg'), chart =>
            Array.from(chart.querySelectorAll('text'), text => text.textContent));
    """
    return browser.execute_script(code)


def click(browser, what):
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", what)
    webdriver.ActionChains(browser).move_to_element(what).click().perform()


def requests_of(browser):
    """What the page has asked for; the browser's own first page asks for more."""
    logged = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [each["params"] for each in logged if each["method"] == "Network.requestWillBeSent"]
    return [each["request"]["url"] for each in asked if each["documentURL"].startswith("file:")]


@pytest.mark.smoke
def test_a_page_sorts_keeps_what_was_chosen_and_needs_no_network(browser, page):
    browser.get(page)
    assert first_column(browser) == ["FedAvg", "Target Only", "FedDA_Auto"]
    dots, curves, weights = charts(browser)
    assert {"FedAvg", "Target Only", "FedDA_Auto"} <= {*dots} & {*curves}
    assert "source-1" in weights

    head = browser.find_elements("css selector", "table th")
    click(browser, head[1])
    assert first_column(browser) == ["FedAvg", "FedDA_Auto", "Target Only"]
    assert head[1].get_attribute("aria-sort") == "descending"
    click(browser, head[1])
    assert first_column(browser) == ["Target Only", "FedDA_Auto", "FedAvg"]

    browser.refresh()
    assert first_column(browser) == ["Target Only", "FedDA_Auto", "FedAvg"]

    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    asked = requests_of(browser)
    assert asked
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked), asked


def test_one_chart_of_a_choice_is_shown_also_after_a_reload(browser, tmp_path, pictures):
    folder = make_run(tmp_path / "first", method="fedavg")
    write_html([folder], tmp_path / "report.html")
    browser.get((tmp_path / "report.html").as_uri())
    assert "Target test accuracy (%)" in charts(browser)[0]
    click(browser, browser.find_element("css selector", "select"))
    webdriver.ActionChains(browser).send_keys("loss").send_keys("\n").perform()
    assert "loss" in charts(browser)[0]
    browser.refresh()
    assert "loss" in charts(browser)[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_readable_in_light_and_in_dark(browser, page, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(page)
    chart = "getComputedStyle(document.querySelector('.chart svg')).filter"
    code = f"return [getComputedStyle(document.body)[arguments[0]], {chart}]"
    (paper, shown), (text, _) = (browser.execute_script(code, key) for key in ("backgroundColor", "color"))
    brightness = sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(",")[:3]))
    assert (brightness > 600) == (scheme == "light")
    assert (brightness < 150) == (scheme == "dark")
    assert text != paper
    assert shown == {"light": "none", "dark": "invert(1) hue-rotate(180deg)"}[scheme]
