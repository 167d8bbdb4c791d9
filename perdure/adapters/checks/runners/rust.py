"""Canaries in Rust: in each file of `tests/`, first, last, and at the end of each test of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from perdure.adapters.checks.runners import failing
from perdure.adapters.checks.runners.base import Canaries

INSIDE = r"#\[cfg\(test\)\]|^\s{0,80}//[/!].{0,20}```"
_HEAD = re.compile(r"(?:\s*+(?://[^\n]*\n|#!\[[^\]\n]*\]))*+\s*+")
"""The parts of a file that count only at its beginning: its comments, its attributes."""

_FORMS = """\
    let forms: Vec<fn()> = vec![
        || assert!(false), || assert_eq!(1, 2), || assert_ne!(1, 1), || panic!("x"), || unreachable!(),
        || { Option::<i32>::None.unwrap(); }, || { Result::<i32, i32>::Err(1).unwrap(); },
    ];
    for form in forms {
        if std::panic::catch_unwind(form).is_ok() {
            return;
        }
    }
    panic!("x");
"""


def program(file: str) -> tuple[str, ...]:
    """Options that build no other program than the one of these tests, which may not compile."""
    found = re.search(r"(?:^|/)tests/([^/]+?)(?:\.rs|/main\.rs)$", file)
    return ("--test", found[1]) if found else ("--lib",) if file.endswith("src/lib.rs") else ()


def planted(files: Mapping[str, str], token: str) -> Canaries:
    planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
    for number, (path, text) in enumerate(sorted(files.items())):
        if not path.endswith(".rs") or "#[" not in text:  # a helper that another one includes
            continue
        changed, own = failing.rust(text, token)
        found = _HEAD.match(changed)
        end = found.end() if found else 0
        first, last = f"a0{token}{number}", f"zz{token}{number}"
        helper = failing.rust_helper(token) if own else ""
        planting[path] = f"{changed[:end]}\n{helper}{_canary(first)}\n{changed[end:]}\n{_canary(last)}"
        bodies |= own
        names |= {first: path, last: path}
    return Canaries(planting, names, bodies)


def _canary(name: str) -> str:
    return f"#[allow(warnings)]\n#[test]\nfn {name}() {{\n{_FORMS}}}\n"
