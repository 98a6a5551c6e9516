#!/usr/bin/env python3
"""Fails if a link leads nowhere, in the rendered book or in documents beside it.

    book-links.py BOOK SOURCES DOCUMENT...

A link of the BOOK must lead to a file of it, and to an element with that id. A page that the summary
does not list is not rendered, so each Markdown file of SOURCES must be in the book. A link of a
DOCUMENT must lead to a file of the repository.
"""
import html.parser
import pathlib
import re
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """The ids and the local links of a page."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.update(attrs[name] for name in ("id", "name") if attrs.get(name))
        link = attrs.get("href" if tag == "a" else "src" if tag == "img" else "")
        if link and not urllib.parse.urlsplit(link).scheme:
            self.links.append(link)


def dead_in_book(book, sources):
    pages = {path.resolve(): Page(path) for path in book.rglob("*.html")}
    for path, page in sorted(pages.items()):
        name = path.relative_to(book.resolve())
        # All pages in one, and the page for what is not found: mdBook writes them with links of others.
        if str(name) in ("print.html", "404.html", "toc.html"):
            continue
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{name}: {link}"
            elif parts.fragment and target in pages and parts.fragment not in pages[target].ids:
                yield f"{name}: {link}: no such anchor"
    for path in sorted(sources.rglob("*.md")):
        page = path.relative_to(sources)
        if page.name == "README.md":
            page = page.with_name("index.md")
        if page.name != "SUMMARY.md" and not (book / page).with_suffix(".html").exists():
            yield f"{path}: docs/SUMMARY.md does not list it"


def dead_in(document):
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        parts = urllib.parse.urlsplit(link)
        if not parts.scheme and parts.path and not (document.parent / parts.path).exists():
            yield f"{document}: {link}"


def main():
    book, sources = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    dead = list(dead_in_book(book, sources))
    for document in sys.argv[3:]:
        dead += dead_in(pathlib.Path(document))
    for link in dead:
        print(link, file=sys.stderr)
    if dead:
        sys.exit(f"{len(dead)} dead link(s)")
    print(f"{len(list(book.rglob('*.html')))} pages, no dead link")


main()
