"""The report page in a real browser: it does what it says, asks for nothing, and models cannot write on it."""

import dataclasses

import pytest
from devtools import Browser, executable
from page_documents import HOSTILE, LABELS, make_document

from gdpo_nemo.report.page import render_page

pytestmark = pytest.mark.skipif(executable() is None, reason="needs Chromium: apt-get install chromium")
ENTER, ESCAPE = ("Enter", 13, "\r"), ("Escape", 27, "")
CELL = "#cell=embedded:tiny/gdpo/format"
VISIBLE = (
    "[...document.querySelectorAll('#curves [data-arm=\"{}\"]')].filter((e) => getComputedStyle(e).display != 'none')"
)
CONTRAST = """(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const back = (e) => { for (; e; e = e.parentElement) {
    const rgb = parts(getComputedStyle(e).backgroundColor);
    if (rgb.length < 4 || rgb[3] > 0) return rgb;
  } return [255, 255, 255]; };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some((n) => n.nodeType == 3 && n.data.trim()) || !e.getClientRects().length) continue;
    if (['SCRIPT', 'STYLE', 'text'].includes(e.tagName)) continue;
    const [a, b] = [luminance(parts(getComputedStyle(e).color)), luminance(back(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2));
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(make_document()), "utf-8")
    return path.as_uri()


def test_an_arm_can_be_switched_off_and_on(browser, address):
    with browser.page(address) as page:
        before = {arm: page.run(VISIBLE.format(arm) + ".length") for arm in LABELS}
        assert all(count == 2 * (1 + 3 + 1 + 1) for count in before.values())  # band, seeds, median, readout; 2 panels
        page.click(".arms input[value=gdpo]")
        assert {arm: page.run(VISIBLE.format(arm) + ".length") for arm in LABELS} == before | {"gdpo": 0}
        page.run("document.getElementById('step').value = 7")
        page.run("document.getElementById('step').dispatchEvent(new Event('input'))")
        assert page.run(VISIBLE.format("gdpo") + ".length") == 0
        page.run("document.querySelector('.arms input[value=gdpo]').focus()")
        page.press(" ", 32, " ")
        assert {arm: page.run(VISIBLE.format(arm) + ".length") for arm in LABELS} == before
        assert page.complaints() == []


def test_of_many_arms_those_with_other_weights_are_off_until_they_are_asked_for(browser, tmp_path):
    document = make_document()
    curves = {model: own + _weighted(own) for model, own in document.curves.items()}
    path = tmp_path / "many.html"
    path.write_text(render_page(dataclasses.replace(document, curves=curves)), "utf-8")
    with browser.page(path.as_uri()) as page:
        shown = {arm: page.run(VISIBLE.format(arm) + ".length") > 0 for arm in (*LABELS, "gdpo_w75", "grpo_w25")}
        assert shown == dict.fromkeys(LABELS, True) | {"gdpo_w75": False, "grpo_w25": False}
        page.click(".arms input[value=gdpo_w75]")
        assert page.run(VISIBLE.format("gdpo_w75") + ".length") > 0
        look = "(() => {{ const s = getComputedStyle(document.querySelector('.median[data-arm={}]')); "
        look += "return [s.stroke, s.strokeDasharray]; }})()"
        (colour, line), (same, other) = (page.run(look.format(arm)) for arm in ("gdpo", "gdpo_w75"))
        assert colour == same and line != other
        assert page.complaints() == []


def _weighted(curves):
    return tuple(
        dataclasses.replace(curve, arm=f"{curve.arm}_w{weight}")
        for curve in curves
        for weight in (75, 50, 25)
        if curve.arm != "grpo_no_std"
    )


def test_a_cell_leads_to_the_full_text_of_its_samples_by_keyboard_and_back(browser, address):
    with browser.page(address) as page:
        page.run(f"document.querySelector('a[href=\"{CELL}\"]').focus()")
        page.press(*ENTER)
        assert page.run("document.getElementById('trace').open")
        assert page.run("document.getElementById('trace-title').textContent") == "GDPO: Correct format (%)"
        runs = page.run("[...document.querySelectorAll('#trace tbody code')].map((e) => e.textContent)")
        assert runs == [f"../gdpo/seed{seed}" for seed in range(3)]
        summaries = "[...document.querySelectorAll('#trace summary')]"
        assert page.run(f"{summaries}.length") == len(HOSTILE)
        for i, text in enumerate(HOSTILE):
            page.run(f"{summaries}[{i}].focus()")
            page.press(*ENTER)
            texts = f"document.querySelectorAll('#trace details')[{i}].querySelectorAll('pre')"
            shown = page.run(f"[...{texts}].map((e) => e.textContent)")
            expected = ["Use tools.", f"{text} ?", f"gdpo: {text}", f"gold {text}"]
            assert shown == expected
        page.press(*ESCAPE)
        assert not page.run("document.getElementById('trace').open")
        assert page.run("location.hash") == ""
        assert page.run("document.activeElement.getAttribute('href')") == CELL
        assert page.run("window.planted") is None
        assert page.requests() == [address]
        assert page.complaints() == []


def test_samples_can_be_ordered_by_the_score_of_the_cell(browser, address):
    with browser.page(address + CELL.replace("/format", "/correct")) as page:
        page.run("document.querySelector('#trace select').value = 'highest'")
        page.run("document.querySelector('#trace select').dispatchEvent(new Event('change'))")
        firsts = page.run("[...document.querySelectorAll('#trace summary')].map((e) => e.firstChild.data)")
        assert firsts[0].startswith("world/0 <i>") and len(firsts) == len(HOSTILE)  # the only one with a grade


@pytest.mark.parametrize("hash_", ["#cell=%E0%A4%A", "#cell=__proto__", "#cell=constructor", "#cell=none", "#curves"])
def test_an_address_that_names_no_cell_opens_nothing(browser, address, hash_):
    with browser.page(address + hash_) as page:
        assert not page.run("document.getElementById('trace').open")
        assert page.complaints() == []


def test_the_policy_of_the_page_stops_what_would_get_past_the_escaping(browser, address):
    with browser.page(address) as page:
        page.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.planted = 4\">')")
        page.run("document.body.append(Object.assign(document.createElement('script'), {text: 'window.planted = 5'}))")
        page.run("fetch('http://127.0.0.1:9/').catch(() => 0)")
        page.settle()
        assert page.run("window.planted") is None
        assert page.requests() == [address]
        assert len(page.complaints()) >= 3


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 770, 1280])
def test_nothing_is_cut_off_and_text_can_be_read(browser, address, width, dark):
    with browser.page(address, width=width, height=844, dark=dark) as page:
        assert page.run("document.documentElement.scrollWidth") <= width
        ends = page.run("[...document.querySelectorAll('.forest')].map((e) => e.getBoundingClientRect().right)")
        assert ends and max(ends) <= width
        assert page.run(CONTRAST) == []
        page.click(f'a[href="{CELL}"]')
        page.click("#trace summary")
        assert page.run("document.getElementById('trace').scrollWidth") <= width
        assert page.run("document.querySelector('#trace pre').getClientRects().length") == 1
        assert page.run(CONTRAST) == []
        background = page.run("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(18, 22, 27)" if dark else "rgb(255, 255, 255)")
