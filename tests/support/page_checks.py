"""Requirements of every page that must open anywhere, checked in its HTML and by a browser."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from html import escape, unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

VOID = {"meta", "img", "br", "link", "input", "hr"}

PROBE = """<script>
addEventListener("load", () => {
  const width = document.documentElement.clientWidth;
  const wide = [...document.querySelectorAll("body *")].filter(
    each => each.getBoundingClientRect().right > width + 1 && !each.parentElement.closest(".scroll"));
  const images = [...document.images];
  const found = {
    width, scrolled: document.documentElement.scrollWidth,
    wide: wide.map(each => each.tagName + "." + each.className),
    broken: images.filter(each => !each.complete || !each.naturalWidth).length, images: images.length,
    requests: performance.getEntriesByType("resource").map(each => each.name).filter(name => !name.startsWith("data:")),
  };
  parent.document.title = "PROBE" + JSON.stringify(found) + "PROBE";
});
</script>"""


class Page(HTMLParser):
    """The elements of a page, in order, with their attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))

    def all(self, *tags: str) -> list[dict[str, str]]:
        """The attributes of all elements of these kinds."""
        return [attributes for tag, attributes in self.elements if tag in tags]

    def text(self, *tags: str) -> list[str]:
        """All text directly in elements of these kinds."""
        return [text.strip() for tag, text in self.texts if tag in tags and text.strip()]


def check_self_contained(page: Page) -> None:
    """Check that no element loads anything, nor the content of pictures."""
    assert not {tag for tag, _ in page.elements} & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert name not in {"srcset", "poster", "background", "ping"}
            assert not name.startswith("on")
            if name in {"src", "href"}:
                assert value.startswith(("data:", "#")), f"{tag} {name}={value[:80]}"
            assert "url(" not in value
    for style in page.text("style"):
        assert not re.search(r"url\(|@import|https?:", style)
    for image in page.all("img"):
        check_picture(image["src"])


def check_picture(address: str) -> None:
    """Check an SVG in a data URL, whose references must be internal."""
    kind, _, content = address.partition(",")
    assert kind == "data:image/svg+xml;base64"
    for element in ElementTree.fromstring(base64.b64decode(content)).iter():
        for name, value in element.attrib.items():
            if name.endswith("href"):
                assert value.startswith(("#", "data:image/png"))
            assert not re.search(r"url\((?!#)", value)


def check_accessible(page: Page) -> None:
    """Check language, viewport, order of headings, alternative texts, headers of tables, and labels."""
    assert page.all("html")[0]["lang"] == "en"
    assert any(meta.get("name") == "viewport" for meta in page.all("meta"))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels)), levels
    assert all(len(image.get("alt", "")) > 20 for image in page.all("img"))
    assert all(cell.get("scope") in {"row", "col"} for cell in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    labels = [attributes["aria-labelledby"] for _, attributes in page.elements if "aria-labelledby" in attributes]
    links = [link["href"][1:] for link in page.all("a") if link["href"].startswith("#")]
    assert {*labels, *links} <= {*ids}


def download(page: Page, name: str) -> str:
    """Content of a file that the page offers for download."""
    (address,) = [link["href"] for link in page.all("a") if link.get("download") == name]
    return base64.b64decode(unquote(address).partition(",")[2]).decode()


def browse(browser: str, page: Path, folder: Path, width: int) -> dict[str, Any]:
    """Measurements by a browser of the page's layout on a screen of this width, in pixels."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    text = text.replace("<details>", "<details open>").replace("</body>", f"{PROBE}</body>")
    frame = folder / f"frame-{width}.html"  # a window cannot be as narrow as a phone
    frame.write_text(f'<iframe srcdoc="{escape(text)}" style="width: {width}px; height: 900px; border: 0"></iframe>')
    output = run_browser(browser, folder, "--dump-dom", "--window-size=1600,1000", frame.as_uri())
    return json.loads(unescape(output.split("PROBE")[1]))


def run_browser(browser: str, folder: Path, *arguments: str) -> str:
    """Standard output of a headless browser without network."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    options += [f"--user-data-dir={folder / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND", "--hide-scrollbars"]
    result = subprocess.run([browser, *options, *arguments], capture_output=True, text=True, timeout=180, check=True)
    complaints = [line for line in result.stderr.splitlines() if ":CONSOLE" in line]
    assert not complaints, complaints
    return result.stdout
