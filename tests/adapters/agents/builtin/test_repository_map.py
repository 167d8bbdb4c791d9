"""The map of a repository: bounded, equal for equal files, and nothing a file holds can end it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.agents.builtin.repository_map import (
    MAP_BYTES,
    MAP_FILE_BYTES,
    MAP_FILES_READ,
    ReadFiles,
    build_map,
    public_names,
)

FILES = {
    "README.md": b"# Durations",
    "durations/__init__.py": b"",
    "durations/parse.py": b"class DurationError(ValueError): ...\n\ndef parse(text): ...\n\ndef _helper(): ...\n",
    "durations/units.py": b"class Units:\n    def of(self): ...\n    def _hidden(self): ...\n    class Inner: ...\n",
    "tests/test_parse.py": b"def test_parse(): ...\n",
    "web/app.ts": b"export function start() {}",
}


def reading(files: Mapping[str, bytes], asked: list[str] | None = None) -> ReadFiles:
    def read(paths: Sequence[str]) -> dict[str, bytes]:
        if asked is not None:
            asked.extend(paths)
        return {path: files[path] for path in paths}

    return read


def test_a_map_tells_languages_tree_and_the_public_names_of_files() -> None:
    assert build_map(FILES, reading(FILES)) == "\n".join(
        [
            "6 files: Python 4, Markdown 1, TypeScript 1.",
            "./",
            "  README.md",
            "  durations/ (3) tests/ (1) web/ (1)",
            "durations/",
            "  parse.py: DurationError, parse()",
            "  units.py: Units(of)",
            "  __init__.py",
            "tests/",
            "  test_parse.py: test_parse()",
            "web/",
            "  app.ts: start()",
        ]
    )


def test_equal_files_give_equal_bytes_in_whatever_order_they_are_listed() -> None:
    assert build_map(reversed(FILES), reading(FILES)) == build_map(sorted(FILES), reading(FILES))


def test_a_repository_without_files_has_no_map() -> None:
    assert build_map([], reading({})) == ""


def test_five_thousand_files_fit_by_depth_and_few_of_them_are_read() -> None:
    files = {f"pkg{n // 250}/sub{n // 50}/mod{n}.py": f"def function_{n}(): ...".encode() for n in range(5000)}
    files |= {f"node_modules/left/{n}.js": b"" for n in range(500)} | {"main.py": b"def main(): ..."}
    asked: list[str] = []
    found = build_map(files, reading(files, asked))
    assert len(found.encode()) <= MAP_BYTES
    assert len(asked) <= MAP_FILES_READ
    assert "  main.py: main()" in found
    assert "pkg0/ (250)" in found
    assert "function_0()" in found
    assert "node_modules/ (500)" in found
    assert "node_modules/left" not in found


def test_names_of_the_product_come_before_those_of_its_tests() -> None:
    many = {f"src/a{n:03}.py": b"def product(): ...\n" for n in range(150)}
    many |= {f"a_tests/test_{n:03}.py": b"def test_it(): ...\n" for n in range(150)}
    found = build_map(many, reading(many))
    assert found.count("product()") > 100
    assert found.count("test_it()") < 60


@pytest.mark.parametrize(
    "data",
    [
        b"def (",
        b"\0",
        b"x = " + b"(" * 5000,
        b"-" * 50_000 + b"1",
        b"\xff\xfe",
        b"# coding: nowhere\n",
        b"a" * (MAP_FILE_BYTES + 1),
    ],
    ids=["syntax", "nul", "parentheses", "signs", "bytes", "coding", "large"],
)
def test_a_file_that_no_parser_likes_has_no_names(data: bytes) -> None:
    assert list(public_names("bad.py", data)) == []
    assert "bad.py" in build_map(["bad.py"], reading({"bad.py": data}))


SCRIPT = b"""// export function told() {}
import x from "./x";
export default async function main(a) {
  export const inner = 1;
}
export class Units<T> extends Base {}
export abstract class Shape {}
export interface Props { a: string }
export type Id = string;
export const LIMIT = 3, $x = 4;
function hidden() {}
"""

GO = b"""package durations

type Units struct{}
type hidden int

func (u *Units) Of(name string) int { return 0 }
func (u Units) quiet() {}
func (h hidden) Shown() {}
func (b *Box[T]) Open() {}
func Parse(text string) (int, error) {
\treturn 0, nil
}
"""


@pytest.mark.parametrize(
    ("path", "data", "names"),
    [
        ("a.ts", SCRIPT, ["main()", "Units", "Shape", "Props", "Id", "LIMIT"]),
        ("a.jsx", SCRIPT.replace(b"\n", b"\r\n"), ["main()", "Units", "Shape", "Props", "Id", "LIMIT"]),
        ("a.go", GO, ["Units(Of)", "Box(Open)", "Parse()"]),
        ("a.ts", b"export function \xff() {}", []),
        ("a.go", b"func (" * 10_000, []),
        ("a.js", b"export default " * 4_000, []),
        ("a.go", b"a" * (MAP_FILE_BYTES + 1), []),
    ],
)
def test_scripts_and_go_tell_what_other_files_can_use(path: str, data: bytes, names: list[str]) -> None:
    assert list(public_names(path, data)) == names


@given(st.binary(max_size=2000), st.sampled_from(["a.go", "a.ts"]))
def test_no_bytes_are_too_odd_to_be_looked_through(data: bytes, path: str) -> None:
    assert all(name.isascii() for name in public_names(path, b"export class " + data + b"\nfunc " + data))


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=300)


@given(st.lists(st.lists(NAMES, min_size=1, max_size=5).map("/".join), max_size=60, unique=True))
def test_a_map_is_bounded_and_on_lines_of_its_own_whatever_files_are_called(paths: list[str]) -> None:
    files = {f"{path}.py": b"def f(): ..." for path in paths}
    found = build_map(files, reading(files))
    assert len(found.encode()) <= 2 * MAP_BYTES, "the top is shown whatever its size"
    assert all(line.isprintable() or " " in line for line in found.split("\n"))
