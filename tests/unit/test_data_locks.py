"""Data sets behind a server on this machine: fetched once, locked, refused when they change."""

import functools
import hashlib
import http.server
import json
import threading

import pytest

from gdpo_nemo.data import sources
from gdpo_nemo.data.download import HUB, URL, Origin
from gdpo_nemo.data.locks import DataLockError, Source, data_root, fetch, fingerprint, locked_file, verify
from gdpo_nemo.errors import InputError, PrerequisiteError, UnknownNameError

ROWS = b'{"question": "1 + 1", "answer": "2"}\n{"question": "2 + 2", "answer": "4"}\n'
COMMIT = "c0ffee" * 6 + "abcd"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder that is served; ``site.asked`` are the paths that were asked for."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder, asked = tmp_path / "site", []
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("Authorization")))
            super().do_GET()

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    folder = type("Site", (), {"folder": folder, "url": f"http://127.0.0.1:{server.server_port}", "asked": asked})
    yield folder
    server.shutdown()
    server.server_close()


@pytest.fixture
def source(site):
    (site.folder / "rows.jsonl").write_bytes(ROWS)
    return Source("sums", Origin(URL, site.url), ("rows.jsonl",), "MIT")


def test_the_first_download_locks_and_the_second_asks_nobody(source, site, tmp_path):
    lock = fetch(source, tmp_path / "data")
    entry = {"sha256": hashlib.sha256(ROWS).hexdigest(), "bytes": len(ROWS)}
    assert lock == {"origin": site.url, "revision": None, "files": {"rows.jsonl": entry}}
    assert json.loads((tmp_path / "data" / "sums" / "lock.json").read_text()) == lock
    assert fetch(source, tmp_path / "data", offline=True) == verify(source, tmp_path / "data") == lock
    assert locked_file(source, "rows.jsonl", tmp_path / "data").read_bytes() == ROWS
    assert len(site.asked) == 1


def test_content_that_changed_is_refused_wherever_it_changed(source, site, tmp_path):
    fetch(source, tmp_path)
    (tmp_path / "sums" / "rows.jsonl").write_bytes(ROWS[:-1])
    for act in (verify, fetch, lambda *where: locked_file(source, "rows.jsonl", tmp_path)):
        with pytest.raises(DataLockError, match=r"rows\.jsonl has SHA-256 .* expected .* move lock\.json away"):
            act(source, tmp_path)
    (tmp_path / "sums" / "rows.jsonl").unlink()
    with pytest.raises(PrerequisiteError, match="is missing; gdpo data fetch"):
        verify(source, tmp_path)
    (site.folder / "rows.jsonl").write_bytes(b"other")
    with pytest.raises(DataLockError, match="changed where it is published"):
        fetch(source, tmp_path)
    assert not (tmp_path / "sums" / "rows.jsonl").exists(), "refused content does not get the file's name"


@pytest.mark.parametrize(
    ("known", "fits"),
    [
        ({"sha256": {"rows.jsonl": hashlib.sha256(ROWS).hexdigest()}}, True),
        ({"sha256": {"rows.jsonl": "0" * 64}}, False),
        ({"git_blobs": {"rows.jsonl": hashlib.sha1(b"blob %d\0" % len(ROWS) + ROWS).hexdigest()}}, True),
        ({"git_blobs": {"rows.jsonl": "0" * 40}}, False),
    ],
)
def test_a_hash_that_is_known_holds_for_the_first_download(known, fits, source, tmp_path):
    known_source = Source(source.name, source.origin, source.files, **known)
    if fits:
        assert fetch(known_source, tmp_path)["files"]["rows.jsonl"]["bytes"] == len(ROWS)
    else:
        with pytest.raises(DataLockError):
            fetch(known_source, tmp_path)


def test_the_blob_id_is_that_of_git(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert fingerprint(tmp_path / "empty").git_blob == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def test_offline_names_what_is_missing_and_the_way_out(source, site, tmp_path, monkeypatch):
    monkeypatch.setenv("GDPO_OFFLINE", "1")
    with pytest.raises(PrerequisiteError, match=r"--from DIR"):
        fetch(source, tmp_path)
    assert site.asked == []
    monkeypatch.setenv("GDPO_OFFLINE", "yes")
    with pytest.raises(InputError, match="expected 1 or 0"):
        fetch(source, tmp_path)


def test_files_that_are_here_already_are_copied_and_locked(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "part-1.jsonl").write_bytes(ROWS)
    source = Source("sums", Origin(HUB, "someone/sums"), ("data/part-*.jsonl",))
    lock = fetch(source, tmp_path / "data", offline=True, copy_from=tmp_path / "mine")
    assert list(lock["files"]) == ["part-1.jsonl"] and lock["revision"] is None
    assert (tmp_path / "data" / "sums" / "part-1.jsonl").read_bytes() == ROWS


def test_a_missing_file_and_a_dead_host_are_told(source, site, tmp_path):
    (site.folder / "rows.jsonl").unlink()
    with pytest.raises(PrerequisiteError, match=r"cannot download http.*rows\.jsonl.*404"):
        fetch(source, tmp_path)
    gone = Source("sums", Origin(URL, "http://127.0.0.1:9"), ("rows.jsonl",))
    with pytest.raises(PrerequisiteError, match="refused"):
        fetch(gone, tmp_path)


@pytest.fixture
def hub(site, monkeypatch):
    """The same site in the form of the hub, at one commit."""
    monkeypatch.setenv("HF_ENDPOINT", site.url)
    monkeypatch.setenv("HF_TOKEN", "sesame")
    about = site.folder / "api" / "datasets" / "someone" / "sums" / "revision"
    about.mkdir(parents=True)
    siblings = [{"rfilename": name} for name in ("README.md", "data/a.jsonl", "data/b.jsonl", "../c.jsonl")]
    (about / "main").write_text(json.dumps({"sha": COMMIT, "siblings": siblings}))
    files = site.folder / "datasets" / "someone" / "sums" / "resolve" / COMMIT / "data"
    files.mkdir(parents=True)
    for name in ("a.jsonl", "b.jsonl"):
        (files / name).write_bytes(ROWS)
    return Source("sums", Origin(HUB, "someone/sums"), ("*.jsonl",))


def test_the_hub_is_asked_for_its_commit_which_is_locked(hub, site, tmp_path):
    lock = fetch(hub, tmp_path)
    assert lock["revision"] == COMMIT and list(lock["files"]) == ["data/a.jsonl", "data/b.jsonl"]
    assert (tmp_path / "sums" / "data" / "a.jsonl").read_bytes() == ROWS
    assert {key for _, key in site.asked} == {"Bearer sesame"}
    assert b"sesame" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    other = Source(hub.name, hub.origin, hub.files, revision="0" * 40)
    with pytest.raises(DataLockError, match="is for revision c0ffee"):
        verify(other, tmp_path)
    absent = Source("others", hub.origin, ("*.parquet",))
    with pytest.raises(PrerequisiteError, match=r"has no file \*\.parquet .* README\.md"):
        fetch(absent, tmp_path)


def test_the_commands_say_what_was_done(hub, tmp_path, monkeypatch):
    monkeypatch.setitem(sources.SOURCES, "sums", (hub,))
    with pytest.raises(PrerequisiteError, match="gdpo data fetch"):
        sources.verify_data("sums", tmp_path)
    text, data = sources.fetch_data("sums", tmp_path)
    assert f"fetched hub:someone/sums at {COMMIT}" in text and hashlib.sha256(ROWS).hexdigest() in text
    assert data == sources.verify_data("sums", tmp_path)[1]
    text, data = sources.data_stats("sums", tmp_path)
    assert "sums/data/a.jsonl: 2 rows; answer, question" in text
    assert data["sums"]["data/b.jsonl"] == {"rows": 2, "columns": ["answer", "question"]}
    with pytest.raises(UnknownNameError, match="Did you mean 'tool_calling'"):
        sources.fetch_data("tool_caling", tmp_path)


def test_the_root_is_given_or_in_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("GDPO_DATA", raising=False)
    assert str(data_root()) == "data"
    monkeypatch.setenv("GDPO_DATA", str(tmp_path))
    assert data_root() == tmp_path
    assert str(data_root("x")) == "x"
