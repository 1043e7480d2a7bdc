"""The page: every file of it as the browser gets it."""
import gzip
import pathlib
import urllib.error
import urllib.request

DIST = pathlib.Path(__file__).parents[2] / "web/dist"


def get(url, **headers):
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)
    except urllib.error.HTTPError as error:
        return error


def test_every_file_is_served(server):
    for file in sorted(DIST.iterdir()):
        name = "" if file.name == "index.html" else file.name.removesuffix(".gz")
        answer = get(f"{server.url}/{name}")
        assert answer.status == 200
        assert answer.read() == file.read_bytes()
        assert answer.headers.get("Content-Encoding") == ("gzip" if file.suffix == ".gz" else None)
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert get(f"{server.url}/{name}", **{"If-None-Match": answer.headers["ETag"]}).status == 304


def test_the_page_names_files_that_are_there(server):
    page = get(server.url + "/").read().decode()
    for name in ("app.js", "app.css", "icon.svg", "manifest.webmanifest"):
        assert f'"{name}"' in page
    assert b"use strict" in gzip.decompress(get(server.url + "/app.js").read())
