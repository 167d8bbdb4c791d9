"""What a person names as the repository is understood, or refused in three lines before anything is made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.adapters.git.remote import remote_heads, remote_tip
from perdure.adapters.git.target import ELSEWHERE, list_not_included, locate_repository, resolve_repository
from perdure.cli.host.init import _find_root
from perdure.models.errors import BadInput
from tests.repositories import git, make_origin


@pytest.fixture
def checkout(origin: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", str(origin), "checkout")
    return tmp_path / "checkout"


def test_a_checkout_means_its_origin_also_from_a_directory_inside(checkout: Path, origin: Path) -> None:
    for named, cwd in ((".", checkout), (str(checkout), Path("/")), (".", checkout / "src"), ("src", checkout)):
        target = resolve_repository(named, cwd)
        assert (target.url, target.checkout, target.name) == (str(origin), checkout, "origin")
    assert target.base_branch() == ("main", git(origin, "rev-parse", "main"))


def test_a_repository_without_an_origin_means_itself(checkout: Path) -> None:
    git(checkout, "remote", "remove", "origin")
    git(checkout, "switch", "-q", "-c", "trunk")
    target = resolve_repository(str(checkout), Path("/"))
    assert (target.url, target.checkout) == (str(checkout), checkout)
    assert target.base_branch()[0] == "trunk", "the default branch is asked for, never assumed"


def test_a_bare_repository_and_a_file_url_have_no_checkout(origin: Path) -> None:
    assert (resolve_repository(str(origin), Path("/")).url, resolve_repository(str(origin), Path("/")).checkout) == (
        str(origin),
        None,
    )
    assert resolve_repository(f"file://{origin}", Path("/")).url == f"file://{origin}"
    assert remote_heads(str(origin)).default == "main"
    assert remote_tip(str(origin), "main") == git(origin, "rev-parse", "main")
    assert remote_tip(str(origin), "no") is None


def test_an_origin_that_is_a_relative_path_is_found_from_the_checkout(checkout: Path, origin: Path) -> None:
    git(checkout, "remote", "set-url", "origin", "../origin.git")
    assert resolve_repository("src", checkout).url == str(origin)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("", "no repository was named"),
        ("--upload-pack=touch x", "starts with a dash"),
        ("ext::sh -c 'touch ran'", "names a program to run"),
        ("fd::7", "names a program to run"),
        ("ssh://-oProxyCommand=touch/x", "starts with a dash"),
        ("ssh://me@-oProxyCommand=touch/x", "starts with a dash"),
        ("javascript://x", "is not spoken here"),
        ("a\nb", "control characters"),
        ("https://ada:hunter2@host/x.git", "carries a password"),
        ("https://ghp_hunter2@host/x.git", "carries a password"),
        ("nowhere", "there is no nowhere"),
        ("plain", "not a git repository"),
        ("file:///nowhere.git", "cannot be reached"),
        ("http://127.0.0.1:1/x.git", "cannot be reached"),
    ],
)
def test_what_is_not_a_repository_is_bad_input(tmp_path: Path, named: str, says: str) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(BadInput, match=says) as caught:
        resolve_repository(named, tmp_path)
    assert "hunter2" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain"]


def test_an_origin_that_is_a_program_or_gone_is_bad_input(checkout: Path) -> None:
    git(checkout, "remote", "set-url", "origin", "ext::sh -c true")
    with pytest.raises(BadInput, match="names a program"):
        resolve_repository(".", checkout)
    git(checkout, "remote", "set-url", "origin", "/nowhere/at/all.git")
    with pytest.raises(BadInput, match="origin of this repository cannot be reached"):
        resolve_repository(".", checkout)


def test_an_unknown_base_names_the_nearest_branch(origin: Path) -> None:
    git(origin, "branch", "release-2", "main")
    target = resolve_repository(str(origin), Path("/"))
    with pytest.raises(BadInput, match="did you mean release-2"):
        target.base_branch("relase-2")
    with pytest.raises(BadInput) as typed:
        target.base_branch("relase-2", field="--base")
    assert typed.value.where.startswith("--base; ")
    with pytest.raises(BadInput, match="did you mean main"):
        target.base_branch("--upload-pack=x")


def test_a_head_that_names_no_branch_asks_for_a_base(origin: Path) -> None:
    git(origin, "symbolic-ref", "HEAD", "refs/heads/gone")
    with pytest.raises(BadInput, match="HEAD names no branch"):
        resolve_repository(str(origin), Path("/")).base_branch()


def test_what_is_not_included_is_counted_in_words(checkout: Path) -> None:
    assert list_not_included(checkout, "main") == []
    (checkout / "README.md").write_text("mine\n")
    assert list_not_included(checkout, "main") == ["1 uncommitted file"]
    (checkout / "new").write_text("x")
    (checkout / "more").write_text("x")
    assert list_not_included(checkout, "main") == ["3 uncommitted files"]
    git(checkout, "add", "-A")
    git(checkout, "-c", "user.name=a", "commit", "-q", "-m", "mine")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "more")
    (checkout / "late").write_text("x")
    assert list_not_included(checkout, "main") == ["1 uncommitted file", "2 unpushed commits on main"]
    git(checkout, "switch", "-q", "-c", "topic")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "topic")
    assert list_not_included(checkout, "main")[1:] == [
        "2 unpushed commits on main",
        "1 commit on topic, which is not the base",
    ]


def test_what_was_pushed_from_elsewhere_is_not_called_unpushed(checkout: Path, origin: Path) -> None:
    for message in ("one", "two"):
        git(checkout, "commit", "-q", "--allow-empty", "-m", message)
    git(checkout, "push", "-q", str(origin), "HEAD~1:refs/heads/main")  # by its address: the clone does not note it
    heads = resolve_repository(str(checkout), Path("/")).heads.branches
    assert list_not_included(checkout, "main", heads=heads) == ["1 unpushed commit on main"]


def test_the_base_is_never_called_another_branch(checkout: Path, origin: Path) -> None:
    git(checkout, "push", "-q", "origin", "HEAD:refs/heads/topic")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "on the base")
    heads = resolve_repository(str(checkout), Path("/")).heads.branches
    assert list_not_included(checkout, "topic", "main", heads) == ["1 unpushed commit on main"]
    git(checkout, "switch", "-q", "-c", "trunk", "--track", "origin/main")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "on the base by another name")
    assert list_not_included(checkout, "main", "main", heads) == [
        "1 unpushed commit on main",
        "1 unpushed commit on trunk",
    ]


def test_a_target_with_an_odd_name_still_gets_a_vault_name(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "Ödd näme.git")
    assert resolve_repository(str(origin), Path("/")).name


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("[user\nname = me", "bad config line 1 in file"),
        ("[core]\nautocrlf = perhaps\n", "bad boolean config value 'perhaps'"),
        ("[core]\nbigFileThreshold = x\n", "bad numeric config value 'x'"),
    ],
)
def test_a_configuration_that_git_cannot_read_is_told_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, told: str
) -> None:
    make_origin(tmp_path / "origin")
    file = tmp_path / ".gitconfig"
    file.write_text(config)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    for find in (lambda place: resolve_repository(".", place), _find_root):
        with pytest.raises(BadInput) as error:
            find(tmp_path / "origin-seed")
        assert told in error.value.what
        assert "init" not in error.value.fix
        if " in file " in error.value.what:
            assert (error.value.where, error.value.fix) == (str(file), "correct this file")


def test_the_command_line_starts_with_a_configuration_that_git_cannot_read(tmp_path: Path) -> None:
    make_origin(tmp_path / "origin")
    (tmp_path / ".gitconfig").write_text("[user\nname = me")
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"HOME": str(tmp_path), "PERDURE_HOME": str(tmp_path / "home"), "ANTHROPIC_API_KEY": "none"}
    for arguments in (["deliver", "Add a test"], ["doctor"]):
        command = [sys.executable, "-m", "perdure.cli", *arguments]
        ended = subprocess.run(
            command, env=env, cwd=tmp_path / "origin-seed", capture_output=True, text=True, check=False
        )
        assert f"bad config line 1 in file {tmp_path}/.gitconfig" in ended.stdout + ended.stderr
        assert "should not have happened" not in ended.stderr


def test_a_broken_repository_is_not_told_to_begin_anew(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    (tmp_path / "inside").mkdir()
    for path in (tmp_path, tmp_path / "inside"):
        with pytest.raises(BadInput, match="git cannot look at this repository: fatal: not a git repository") as error:
            resolve_repository(str(path), tmp_path)
        assert error.value.fix == f"make this work first: git -C {path} status"


def test_the_git_directory_of_a_checkout_means_the_checkout(tmp_path: Path) -> None:
    make_origin(tmp_path / "origin")
    checkout = tmp_path / "origin-seed"
    for repository, cwd in (("origin-seed/.git", tmp_path), ("origin-seed/.git/", tmp_path), (".", checkout / ".git")):
        target = resolve_repository(repository, cwd)
        assert (target.checkout, target.url) == (checkout, str(checkout))


@pytest.mark.parametrize("name", ["--upload-pack=x", "gopher://h/x", "ssh://-oProxyCommand=x/y", "/srv/\0calc", " "])
def test_what_is_wrong_with_a_name_names_the_field_to_a_program_and_the_option_to_a_person(name: str) -> None:
    for find, place in ((locate_repository, "repository"), (resolve_repository, "--repo")):
        with pytest.raises(BadInput) as refused:
            find(name, ELSEWHERE)
        assert refused.value.where == place
        assert "--repo" not in refused.value.fix
