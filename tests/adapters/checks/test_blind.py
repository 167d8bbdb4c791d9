"""New lines of a product that lead nowhere but to its own values, and those that may."""

from __future__ import annotations

import pytest

from perdure.adapters.checks.runners import blind

OWN = frozenset({"calc", "helper"})


@pytest.mark.parametrize(
    ("before", "after", "is_blind"),
    [
        (
            "",
            "import math\nfrom calc import add\nfrom . import more\n\n\ndef f(a):\n    return add(math.floor(a), 1)\n",
            True,
        ),
        ("import os\n", "import os\n\n\ndef f(a: int) -> int:\n    raise ValueError(f'{a} is no number')\n", True),
        ("import numpy as np\n", "import numpy as np\n\nx = np.zeros(3)\n", True),
        ("import os as o\n", "import os as o\n\nx = o.sep\n", False),
        ("from os import sep\n", "from os import sep\n\nx = sep\n", False),
        ("", "import numpy\n", False),
        ("", "from urllib import request\n", False),
        ("", "import json\n\njson.dumps = None\n", False),
        ("", "import json\n\njson.decoder.scanner.x[0].y = None\n", False),
        ("", "x = json.codecs.sys.last_value\n", False),
        ("", "x = (lambda: 0).__globals__\n", False),
        ("", "x = '{0.a}'.format(1)\n", False),
        ("", "x = getattr(1, 'real')\n", False),
        ("", "import ｏｓ\n", False),
        ("", "# coding: utf-7\n", False),
        ("", "def f(:\n", False),
    ],
)
def test_python(before: str, after: str, is_blind: bool) -> None:
    assert blind.is_blind_python_change("calc.py", before, after, OWN) is is_blind


@pytest.mark.parametrize(
    ("line", "is_blind"),
    [
        ("exports.half = (a) => a / 2;", True),
        ("const { add } = require('./calc.js');", True),
        ("import { add } from '../calc.mjs';", True),
        ("if (x['a'] === y[0]) throw new Error('b');", True),
        ("const fs = require('fs');", False),
        ("import fs from 'node:fs';", False),
        ("const x = (() => 0)[name];", False),
        ("const { [name]: x } = () => 0;", False),
        ("const x = (() => 0)?.['const' + 'ructor'];", False),
        ("pro\\u0063ess.exit(0);", False),
        ("Math.max = () => 0;", False),
        ("const x = new Error('a').stack;", False),
        ("const x = util.inspect;", False),
    ],
)
def test_javascript(line: str, is_blind: bool) -> None:
    old = "const util = require('util');\n"
    assert blind.is_blind_javascript_change("calc.js", old, f"{old}{line}\n") is is_blind


@pytest.mark.parametrize(
    ("line", "is_blind"),
    [
        ('import "strings"', True),
        ('\tm "math"', True),
        ("\treturn fmt.Errorf(`%d`, a)", True),
        ('import "os"', False),
        ('import r "runtime"', False),
        ("\t_, f, _, _ := w.Caller(1)", False),
        ("\tx := w.GOOS", False),
        ("//go:linkname f testing.f", False),
        ("\tfmt.Println(1)", False),
    ],
)
def test_go(line: str, is_blind: bool) -> None:
    old = 'package calc\n\nimport w "runtime"\n'
    assert blind.is_blind_go_change("calc.go", old, f"{old}{line}\n") is is_blind


def test_files_that_nobody_knows_are_not_blind_and_words_for_people_are() -> None:
    assert blind.is_blind_python_change("docs/a.md", "", "import sys\n", OWN)
    assert not blind.is_blind_python_change("calc.so", "", "", OWN)
    assert not blind.is_blind_go_change("calc.s", "", "")
    assert not blind.is_blind_javascript_change("calc.ts", "", "")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "a[" * 50_000,
        "\n" * 100_000,
        "import \n" * 20_000,
        "import " * 20_000,
        '"' * 100_000,
        "A." * 50_000,
    ],
)
def test_hostile_text_is_read_in_bounded_time(text: str) -> None:
    blind.is_blind_python_change("a.py", "", text, OWN)
    blind.is_blind_javascript_change("a.js", "", text)
    blind.is_blind_go_change("a.go", "", text)
