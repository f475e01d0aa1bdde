"""One type for what a question returns, and few names to ask by."""

# SPDX-License-Identifier: GPL-2.0-only

import inspect
import json
import types

import pandas as pd
import pytest

import pcpmodel as pm
from pcpmodel.study.answer import Answer

ROOMS = ("datasets", "figures", "numa", "study", "workload")
#: They make something, read hosts as `pm.this_machine` does one, or tell more of a `Result`.
NO_QUESTIONS = ("add_workload", "example_tree", "explain_machines", "whole_build")
QUESTIONS = {
    **{f"pm.{n}": getattr(pm, n) for n in ("advise", "compare", "cover_letter", "fit", "limit")},
    **{f"pm.study.{n}": getattr(pm.study, n) for n in pm.study.__all__ if n not in NO_QUESTIONS},
    **{
        f"pm.numa.{n}": getattr(pm.numa, n)
        for n in (
            "compare",
            "first_version",
            "migrate_pages",
            "objections",
            "repeated",
            "situations",
        )
    },
}


def answer(**changes):
    table = pd.DataFrame({"release": ["v6.6", "v6.7"], "holds": [3, float("nan")]})
    said = {"most": "- **Most**: 3 holds.", "least": "- None known."}
    return Answer(**{"tables": {"holds": table, "same": table[:0]}, "said": said} | changes)


def test_names_are_few():
    assert [n for n in ROOMS if not isinstance(getattr(pm, n), types.ModuleType)] == []
    assert len(set(pm._PUBLIC) - {*ROOMS, "InputError"}) == 29
    assert set(pm.__all__) <= {*dir(pm), "__version__"}
    for module in (pm, pm.study, pm.numa, pm.datasets):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            _ = module.nothing


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_returns_an_answer(name):
    asked = QUESTIONS[name]
    kind = inspect.unwrap(asked).__globals__[inspect.signature(asked).return_annotation]
    assert issubclass(kind, Answer)


def test_the_conclusion_is_made_of_named_pieces():
    found = answer()
    assert found.text == "- **Most**: 3 holds.\n- None known."
    assert found.said["least"] == "- None known."
    assert found.table is found["holds"] is found.tables["holds"]
    with pytest.raises(pm.InputError, match="did you mean 'holds'"):
        _ = found["hold"]


def test_it_prints_and_shows_itself_without_what_is_empty():
    found = answer()
    printed, shown = str(found), found._repr_markdown_()
    assert printed.startswith("holds\nrelease  holds\n")
    assert printed.endswith("- Most: 3 holds.\n- None known.")
    assert "<table" in shown
    assert shown.endswith(found.text)
    assert "same" not in printed + shown
    assert str(answer(shown=())) == "- Most: 3 holds.\n- None known."


def test_facts_are_its_json_and_its_digest():
    told = answer().as_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["tables"]["holds"][1] == {"release": "v6.7", "holds": None}
    assert answer().digest == answer().digest != answer(said={}).digest
    assert answer(facts={"a": 1}).as_dict() == {"a": 1}
    assert answer(digest="of the data").digest == "of the data"
