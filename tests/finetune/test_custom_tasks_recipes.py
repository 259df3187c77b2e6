"""The recipes of docs/custom_tasks.md do what they say: their descriptions are right and read their files."""

import json
import re
from pathlib import Path

import pytest

from configure_finetuning import make_config
from finetune.preprocessing import feature_set
from finetune.task_builder import make_tasks
from tests.finetune.task_files import tokenizer, write

TEXT = (Path(__file__).parents[2] / "docs" / "custom_tasks.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"```\w+ (\S+/train\.\w+)\n(.*?)```\s+```json\n(.*?)```", TEXT, re.DOTALL)


def test_there_is_a_recipe_for_every_kind():
    kinds = [json.loads(hparams)["custom_tasks"][0]["kind"] for _, _, hparams in RECIPES]
    assert kinds == ["classification", "classification", "regression", "tagging", "qa"]


@pytest.mark.parametrize("name, content, hparams", RECIPES, ids=[recipe[0] for recipe in RECIPES])
def test_recipe(tmp_path, name, content, hparams):
    write(tmp_path, name, content)
    config = make_config("m", str(tmp_path), json.loads(hparams))
    (task,) = make_tasks(config, tokenizer())
    rows = feature_set(task, "train", True, config)
    assert name.startswith(f"{task.name}/")
    assert len(rows) == len(task.examples("train")) > 0
    assert all({f"{task.name}_eid", "input_ids", "segment_ids"} <= rows[i].keys() for i in range(len(rows)))
