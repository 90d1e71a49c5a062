"""Debian's Chromium without a window, for pages that a person looks at."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

Scheme = Literal["light", "dark"]


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """Give a browser that keeps all it writes in a folder, and is gone at the end."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    # Its sandbox refuses root, which CI is; /dev/shm is small in containers.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                     "--hide-scrollbars", f"--user-data-dir={profile}"):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = Service(shutil.which("chromedriver"), env={"HOME": str(profile), "PATH": "/usr/bin"})
    browser = webdriver.Chrome(options=options, service=service)
    try:
        yield browser
    finally:
        browser.quit()


def show(browser: webdriver.Chrome, page: Path, width: int, scheme: Scheme) -> None:
    """Open a page as a screen of that width shows it, in light or in dark."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())


def picture(browser: webdriver.Chrome, selector: str) -> bytes:
    box = browser.execute_script(
        "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return {x: box.x + scrollX - 3, y: box.y + scrollY - 3, width: box.width + 6,"
        " height: box.height + 6, scale: 1.5}", selector,
    )  # fmt: skip
    shot = {"captureBeyondViewport": True, "clip": box}
    return base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", shot)["data"])
