"""Pages in Chromium, driven by chromedriver: what is wrong with a page for who sees, who types and who listens."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
WIDTHS, SCHEMES = (1400, 768, 420), ("light", "dark")
NAMED = {
    "img",
    "image",
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "checkbox",
    "region",
    "graphics-document",
}
REACHABLE = "a[href], button, summary, input:not([type=hidden]), select, textarea, [tabindex='0']"
SMALLEST = 9.5  # pixels, of the text in a picture
CONTRAST = 4.5  # of the Web Content Accessibility Guidelines, level AA, for text of usual size

CLIPPED = """
const wrong = [], wide = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > wide) wrong.push("the page is wider than the window");
for (const one of document.querySelectorAll("figure svg text, h1, h2, h3, p, li, dd, td, th, button, label")) {
  const box = one.getBoundingClientRect();
  const may = ".scroll, .table-wrapper, .highlight, nav, aside, .sidebar-drawer, .toc-drawer, .visually-hidden";
  if (!box.width || one.closest(may)) continue;
  if (box.right > wide + 1 || box.left < -1) wrong.push("clipped: " + one.textContent.slice(0, 60));
}
for (const one of document.querySelectorAll("p, li, dd, td, th, summary, figcaption")) {
  const box = one.getBoundingClientRect(), said = one.textContent.trim();
  if (box.width && box.width < 60 && box.height > 160 && said.length > 8)
    wrong.push("broken letter by letter: " + said.slice(0, 60));
}
for (const one of document.querySelectorAll("figure svg text")) {
  const box = one.getBoundingClientRect(), own = one.ownerSVGElement.getBoundingClientRect();
  if (box.right > own.right + 2 || box.left < own.left - 2 || box.bottom > own.bottom + 2 || box.top < own.top - 2)
    wrong.push("outside its picture: " + one.textContent.slice(0, 60));
}
for (const picture of document.querySelectorAll("figure svg[role=img]")) {
  const unit = picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
  const texts = [...picture.querySelectorAll("text")].filter(one => one.textContent.trim());
  const boxes = texts.map(one => one.getBoundingClientRect());
  texts.forEach((one, i) => {
    const size = unit * parseFloat(getComputedStyle(one).fontSize);
    if (unit && size < arguments[0]) wrong.push("too small, " + size.toFixed(1) + ": " + one.textContent.slice(0, 60));
    for (let j = 0; j < i; j++) {
      const a = boxes[i], b = boxes[j];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 3 && high > 4) wrong.push("overprinted: " + texts[j].textContent + " by " + one.textContent);
    }
  });
}
return wrong;
"""

FAINT = """
const light = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const rgb = said => said.match(/[\\d.]+/g).map(Number);
const shine = c => 0.2126 * light(c[0]) + 0.7152 * light(c[1]) + 0.0722 * light(c[2]);
const behind = one => {
  for (; one; one = one.parentElement) {
    const c = rgb(getComputedStyle(one).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c;
  }
  return [255, 255, 255];
};
const wrong = [];
const texts = "h1, h2, h3, p, li, td, th, dd, dt, small, figcaption, summary, a, b, button";
for (const one of document.querySelectorAll(texts)) {
  if (!one.getBoundingClientRect().width || !one.textContent.trim()) continue;
  const a = shine(rgb(getComputedStyle(one).color)), b = shine(behind(one));
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < arguments[0]) wrong.push("faint, " + contrast.toFixed(1) + ": " + one.textContent.trim().slice(0, 60));
}
return wrong;
"""


@contextmanager
def browser() -> Iterator:
    """A headless Chromium that keeps what its console said and what it asked for."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def look_at(driver, address: str, width: int, scheme: str) -> list[str]:
    """Open a page at a width, light or dark, and say what is wrong with how it looks and what it did."""
    scheme_said = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": scheme_said})
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for kind in ("browser", "performance"):
        driver.get_log(kind)  # what was said before is not of this page
    driver.get(address)
    wrong = driver.execute_script(CLIPPED, SMALLEST) + driver.execute_script(FAINT, CONTRAST)
    wrong += [f"console: {said['message']}" for said in driver.get_log("browser")]
    return wrong + [f"asks for {url}" for url in asked_for(driver) if not url.startswith((_home(address), "data:"))]


def asked_for(driver) -> list[str]:
    """Every address that was asked for since the log was read last."""
    read = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [one["params"]["request"]["url"] for one in read if one["method"] == "Network.requestWillBeSent"]


def _home(address: str) -> str:
    """What a page may ask for: its own folder, or its own server."""
    scheme, _, rest = address.partition("://")
    return address.rsplit("/", 1)[0] if scheme == "file" else f"{scheme}://{rest.split('/')[0]}"


def unreachable(driver) -> list[str]:
    """What can be used but not reached with the Tab key, and what shows no sign that it was reached."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    usable = [one for one in driver.find_elements(By.CSS_SELECTOR, REACHABLE) if one.is_displayed()]
    driver.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached, wrong = set(), []
    for _ in range(len(usable) + 2):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        one = driver.switch_to.active_element
        if one.tag_name != "body" and one.id not in reached:
            reached.add(one.id)
            seen = driver.execute_script(
                "const s = getComputedStyle(arguments[0]); return [s.outlineStyle, s.boxShadow]", one
            )
            if seen[0] == "none" and seen[1] == "none":
                wrong.append(f"no sign of the focus: {one.text[:60] or one.tag_name}")
    return wrong + [f"not reached by Tab: {one.text[:60] or one.tag_name}" for one in usable if one.id not in reached]


def unnamed(driver) -> list[str]:
    """What a screen reader would meet without a name; and a page without language, title or one main heading."""
    tree = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    wrong = [
        f"a {role} without a name"
        for node in tree
        if not node.get("ignored") and (role := node.get("role", {}).get("value")) in NAMED
        and not node.get("name", {}).get("value", "").strip()
    ]  # fmt: skip
    page = "return [document.documentElement.lang, document.title, document.querySelectorAll('h1').length]"
    language, title, headings = driver.execute_script(page)
    wrong += [] if language else ["no language"]
    wrong += [] if title else ["no title"]
    return wrong if headings == 1 else [*wrong, f"{headings} main headings"]
