"""The site: `python docs/pages/site.py` lays out docs/ as pages, has zensical build them, and checks every link.

Pages may link to files of the repository. The site has a page for each of these, so that it needs no other machine.
Zensical refuses pages and anchors that are not there; pictures and other files are looked for here.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent.parent
SETTINGS = ROOT / "zensical.toml"
PAGES = ROOT / "build/pages"
SITE = ROOT / "build/site"
BESIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
"""Files of the repository -> the page that they are."""
SHOWN = 200_000
"""Bytes of a file that its page shows."""
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json"}
SHIM = re.compile(r'<script src="https?://[^"]*/iframe-worker/shim"[^>]*>')
"""By which zensical makes the search of pages in a folder work; it would be fetched from another machine."""
OURS = "search_frame.js"
LINK = re.compile(r"\]\(([^)\s]+)\)")


def navigation() -> list[str]:
    """The pages that the navigation names, in its order."""
    groups = tomllib.loads(SETTINGS.read_text())["project"]["nav"]
    return [page for group in groups for pages in group.values() for page in pages]


def lay_out() -> None:
    """Writes the pages that zensical reads: those of docs/, what stands beside them, and the files they link to."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs/pictures", PAGES / "pictures")
    shutil.copy(ROOT / "docs/pages/site.css", PAGES / "site.css")
    sources = {page: page.name for page in sorted((ROOT / "docs").glob("*.md"))}
    sources |= {ROOT / file: page for file, page in BESIDE.items() if page != "index.md"}
    linked: set[Path] = set()
    for source, page in sources.items():
        (PAGES / page).write_text(on_site(source, linked))
    for file in sorted(linked):
        page = PAGES / page_of(file)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(shown(file))
    if differ := {*navigation()} ^ {*sources.values()}:
        raise SystemExit(f"error: the navigation in {SETTINGS.name} and docs/ differ: {', '.join(sorted(differ))}")


def page_of(file: Path) -> str:
    """The page that shows a file or a folder of the repository."""
    return f"files/{file.relative_to(ROOT).as_posix()}.md"


def on_site(source: Path, linked: set[Path]) -> str:
    """The text of a page, whose links stay on the site; adds to `linked` the files that need a page."""

    def target(match: re.Match[str]) -> str:
        link = match[1]
        name, _, anchor = link.partition("#")
        if "://" in link or not name:
            return match[0]
        file = (source.parent / name).resolve()
        if not file.exists():
            raise SystemExit(f"error: {source.relative_to(ROOT)} links to {link}, which is not there")
        found = BESIDE.get(file.relative_to(ROOT).as_posix())
        if found is None and file.parent in (ROOT / "docs", ROOT / "docs/pictures"):
            found = file.relative_to(ROOT / "docs").as_posix()
        if found is None:
            linked.add(file)
            found = page_of(file)
        return f"]({found}{'#' * bool(anchor)}{anchor})"

    parts = re.split(r"(^ *```.*?^ *```)", source.read_text(), flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.lstrip().startswith("```") else apart(LINK.sub(target, part)) for part in parts)


def apart(text: str) -> str:
    """The text with an empty line between a paragraph and a list after it: zensical sees no list without."""
    return re.sub(r"^((?![-\s#|]|\d+\. ).+\n)(?=- |1\. )", r"\1\n", text, flags=re.MULTILINE)


def shown(file: Path) -> str:
    """A page with the content of a file, or with the names in a folder."""
    head = f"---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# {file.relative_to(ROOT)}\n\n"
    if file.is_dir():
        names = [
            each.name + "/" * each.is_dir() for each in sorted(file.iterdir()) if not each.name.startswith(("_", "."))
        ]
        return head + "\n".join(f"- `{name}`" for name in names) + "\n"
    if file.stat().st_size > SHOWN:
        return head + f"This file has {file.stat().st_size:,} bytes. It comes with the source of lengthwise.\n"
    return head + f"````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text().rstrip()}\n````\n"


class Targets(HTMLParser):
    """What a page links to, and the names of its places."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            elif name == "id" and value:
                self.places.add(value)


def broken_links(site: Path) -> list[str]:
    """Links of a built site that lead nowhere within it, each with the page that it is on."""
    pages = {page: Targets(page.read_text()) for page in site.rglob("*.html") if page.name != "404.html"}
    broken = []
    for page, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            file = file / "index.html" if file.is_dir() else file
            place = unquote(parts.fragment)
            if not file.is_file() or (place and file in pages and place not in pages[file].places):
                broken.append(f"{page.relative_to(site)}: {link}")
    return broken


def keep_to_itself(site: Path) -> None:
    """Puts our own script in the place of the one that would be fetched; refuses what else comes from elsewhere."""
    shutil.copy(ROOT / "docs/pages" / OURS, site / OURS)
    for page in site.rglob("*.html"):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        text = SHIM.sub(f'<script src="{up}{OURS}">', page.read_text())
        page.write_text(text)
        if found := re.findall(r'<(?:script|img|iframe)[^>]* src="(https?:[^"]*)"', text):
            raise SystemExit(f"error: {page.relative_to(site)} fetches {found[0]}")


def build() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    lay_out()
    zensical = Path(sys.executable).with_name("zensical")
    done = subprocess.run([zensical, "build", "--strict", "--clean"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr))
    keep_to_itself(SITE)
    if broken := broken_links(SITE):
        raise SystemExit("\n".join(["error: links that lead nowhere", *broken]))


if __name__ == "__main__":
    build()
    print(f"open {(SITE / 'index.html').relative_to(ROOT)}")
