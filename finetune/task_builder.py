"""Tasks by name: the one table of those that exist, and the user's own."""

from configure_finetuning import FinetuningConfig
from finetune.classification.glue_tasks import GLUE_TASKS
from finetune.custom_tasks import check_descriptions, make_custom_task
from finetune.qa.qa_tasks import MRQA, SQuAD, SQuADv1
from finetune.tagging.tagging_tasks import Chunking
from finetune.task import Task
from model.tokenization import FullTokenizer
from util.errors import UserError, nearest_hint

TASKS = {
    **GLUE_TASKS,
    "chunk": Chunking,
    "squad": SQuAD,
    "squadv1": SQuADv1,
    **dict.fromkeys(("newsqa", "naturalqs", "triviaqa", "searchqa"), MRQA),
}


def make_tasks(config: FinetuningConfig, tokenizer: FullTokenizer) -> list[Task]:
    """The tasks that `config.task_names` names, in that order.

    Raises:
      UserError: none is named, one is not known, or one is named twice; or a description in `custom_tasks` is wrong.
    """
    own = check_descriptions(config.custom_tasks, TASKS)
    names = config.task_names
    if not names:
        raise UserError("hparam task_names is empty; name one or more of: " + ", ".join([*TASKS, *own]))
    for name in names:
        if not isinstance(name, str) or name not in (*TASKS, *own):
            hint = nearest_hint(str(name), [*TASKS, *own]) or "."
            raise UserError(f"hparam task_names: unknown task {name!r}{hint} Tasks: {', '.join([*TASKS, *own])}")
        if names.count(name) > 1:
            raise UserError(f'hparam task_names names "{name}" twice')
    tasks = [
        make_custom_task(config, own[name], tokenizer) if name in own else TASKS[name](config, name, tokenizer)
        for name in names
    ]
    for task in tasks:
        if task.head_name in names and task.head_name != task.name:
            raise UserError(f"hparam task_names: {task.name} uses the head of {task.head_name}; name it alone")
    return tasks
