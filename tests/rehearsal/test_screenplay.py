"""A screenplay that is wrong says where."""

from __future__ import annotations

import pytest

from perdure.models.errors import BadInput
from perdure.rehearsal.screenplay import Screenplay

WRONG = [
    ("title = ", "not valid TOML", "play.toml:1"),
    ('title = "x"', "line is missing", "play.toml:1"),
    ('[[line]]\nsay = "x"\n\n[[line]]\nsay = "y"\nlats = "z"', "unknown key lats (did you mean last?)", "play.toml:6"),
    ('[[line]]\nsay = "x"\nfault = "418"', "fault", "play.toml:3"),
    ('[[line]]\nsay = "x"\nstep = "implemet"', "step", "play.toml:3"),
    ('[[line]]\nsay = "x"\nstep = "commit"', "no model is asked in step commit", "play.toml:3"),
    ('[[line]]\nsay = "x"\nlast = "(["', "not a regular expression", "play.toml:3"),
    ('[[line]]\nsay = "x"\nturn = 0', "turn is 0, allowed is 1 or more", "play.toml:3"),
    ('[[line]]\nsay = "x"\n[[line]]\nstep = "plan"', "the line says nothing", "play.toml:3"),
    ('[[line]]\nsay = "x"\nanswer = { a = 1 }', "write one of them", "play.toml:1"),
    ('[[line]]\nsay = "x"\ntimes = 2', "belong to a fault", "play.toml:1"),
    ('[[line]]\nuse = [{ tool = "bash", inputs = {} }]', "unknown key inputs (did you mean input?)", "play.toml:2"),
]


@pytest.mark.parametrize(("toml", "what", "where"), WRONG)
def test_a_mistake_is_named_with_file_line_and_key(tmp_path, toml, what, where):
    file = tmp_path / "play.toml"
    file.write_text(toml)
    with pytest.raises(BadInput) as caught:
        Screenplay.load(file)
    assert what in caught.value.what
    assert caught.value.where.split(" ")[0] == f"{tmp_path}/{where}"
    assert caught.value.fix


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_bad_input(tmp_path, content):
    file = tmp_path / "play.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput, match="cannot be read"):
        Screenplay.load(file)
