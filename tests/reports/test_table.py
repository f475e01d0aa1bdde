"""Frames as a reader wants them."""

# SPDX-License-Identifier: GPL-2.0-only

import pandas as pd

import pcpmodel as pm


def shown(frame: pd.DataFrame, **options: int) -> str:
    return pm.table(frame, **options)._repr_html_()


def test_every_row_and_every_word_is_there() -> None:
    origin = "estimate: " + "word " * 40 + "end"
    page = shown(pd.DataFrame({"origin": [f"{i} {origin}" for i in range(500)]}))
    assert page.count("<tr") == 501
    assert page.count("end</td>") == 500


def test_numbers_are_written_alike_whatever_their_column_holds() -> None:
    mixed = pd.Series([1.23456, 12345678.0, 9300, "v6.7", True], dtype=object)
    page = shown(pd.DataFrame({"value": mixed, "pages": pd.array([2016, None] * 2 + [1], "Int64")}))
    for text in ("1.23", "12,345,678.00", "9,300", "v6.7", "yes", "2,016"):
        assert f"<td>{text}</td>" in page
    assert page.count("<td></td>") == 2
    assert "<td>1.235</td>" in shown(pd.DataFrame({"value": mixed[:1]}), digits=3)


def test_text_is_no_markup_and_names_may_break_at_their_joints() -> None:
    frame = pd.DataFrame({"hold_p99_us": ["<b>a_b</b>"]}, index=pd.Index(["row_a"], name="of_it"))
    page = shown(frame)
    assert "hold_<wbr>p99_<wbr>us" in page
    assert "<td>&lt;b&gt;a_<wbr>b&lt;/b&gt;</td>" in page
    assert "<th>row_a</th>" in page
    assert 'class="long"' not in page
    assert 'class="long">' in shown(frame.rename({"row_a": "a label " * 5}))


def test_same_frame_same_bytes_and_left_alone() -> None:
    frame = pd.DataFrame({"x": [0.5, float("nan")]})
    before = frame.copy()
    assert shown(frame) == shown(frame)
    pd.testing.assert_frame_equal(frame, before)
    assert repr(pm.table(frame, digits=1)) == frame.round(1).to_string()
