"""The committed page equals the one that `make web` builds."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from jointnmt.serving.page import PAGE
from support.browser import WEB, missing, package


def test_the_committed_page_is_a_fresh_build(tmp_path: Path) -> None:
    if not shutil.which("node"):
        missing("there is no node: the page is not built")
    package("esbuild")
    fresh = tmp_path / "page.html"
    subprocess.run(["node", "build.mjs", str(fresh)], cwd=WEB, check=True, timeout=120)
    assert fresh.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8"), "run make web, and commit the page"


def test_no_page_is_built_without_the_licences_of_its_packages(tmp_path: Path) -> None:
    if not shutil.which("node"):
        missing("there is no node: the page is not built")
    package("esbuild")
    shutil.copy(WEB / "build.mjs", tmp_path)
    shutil.copytree(WEB / "src", tmp_path / "src")
    (tmp_path / "node_modules").symlink_to(WEB / "node_modules")
    page = tmp_path / "page.html"
    result = subprocess.run(["node", "build.mjs", str(page)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode != 0
    assert "no licence is known of" in result.stderr
    assert not page.exists()


def test_the_page_is_of_the_right_types() -> None:
    if not shutil.which("node"):
        missing("there is no node: types are not checked")
    compiler = package("typescript/bin/tsc")
    result = subprocess.run(["node", str(compiler)], cwd=WEB, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout
