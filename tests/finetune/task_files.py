"""Task files for tests, and the tasks that read them."""

from pathlib import Path

from configure_finetuning import FinetuningConfig, make_config
from finetune.task import Task
from finetune.task_builder import make_tasks
from model.tokenization import FullTokenizer, load_vocab

VOCABULARY = load_vocab(str(Path(__file__).parents[1] / "golden" / "vocab_1000.txt"))


def tokenizer(lower: bool = True) -> FullTokenizer:
    return FullTokenizer(VOCABULARY, lower)


def write(data_dir: Path, name: str, content: str | bytes) -> Path:
    """Writes finetuning_data/<name>."""
    path = data_dir / "finetuning_data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def config_of(data_dir: Path, task: str, description: dict | None = None, **hparams) -> FinetuningConfig:
    """A config with one task, of one's own if a description is given."""
    own = {"custom_tasks": [{"name": task, **description}]} if description else {}
    return make_config("m", str(data_dir), {"task_names": [task], "max_seq_length": 32, **own, **hparams})


def task_of(data_dir: Path, task: str, description: dict | None = None, **hparams) -> Task:
    """One task."""
    return make_tasks(config_of(data_dir, task, description, **hparams), tokenizer())[0]
