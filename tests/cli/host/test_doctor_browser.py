"""`perdure doctor` looks for a browser where screenshots are asked for, and only there."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests import needs
from tests.cli.conftest import Cli


def browsers(cli: Cli, **env: str) -> list[dict[str, str]]:
    ran = cli("doctor", "--json", **env)
    return [finding for finding in json.loads(ran.out) if finding["name"] == "browser"]


def without_chromium(root: Path) -> str:
    """A PATH that has git, and nothing that could be a browser."""
    directory = root / "bin"
    directory.mkdir()
    for name in ("git", "env", "bwrap", "sh", "bash"):
        found = next((f"{at}/{name}" for at in os.environ["PATH"].split(":") if os.path.exists(f"{at}/{name}")), "")
        if found:
            (directory / name).symlink_to(found)
    return str(directory)


def test_a_browser_is_looked_for_where_app_is_set(cli: Cli, tmp_path: Path) -> None:
    assert browsers(cli) == []
    settings = cli.cwd / "perdure.toml"
    settings.write_text(settings.read_text() + '\n[app]\nstart = "true"\n')
    (finding,) = browsers(cli)
    if missing_programs := needs.missing("chromium"):
        assert finding["mark"] == "!", missing_programs
    else:
        assert (finding["mark"], finding["text"].rpartition(", ")[2]) in (("✓", "for [app]"), ("!", "for [app]"))
    (missing,) = browsers(cli, PATH=without_chromium(tmp_path))
    assert missing["mark"] == "!"
    assert "no screenshots" in missing["text"]
    assert "install" in missing["fix"]


def test_a_settings_file_that_is_malformed_is_reported_with_its_place_and_looks_for_no_browser(cli: Cli) -> None:
    (cli.cwd / "perdure.toml").write_text('[app]\nstarts = "true"\n')
    ran = cli("doctor", "--json")
    findings = json.loads(ran.out)
    (finding,) = [finding for finding in findings if finding["name"] == "settings"]
    assert finding["mark"] == "✗"
    assert "perdure.toml" in finding["text"]
    assert "start" in finding["fix"]
    assert "browser" not in {finding["name"] for finding in findings}
    assert ran.code == 1
