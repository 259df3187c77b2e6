"""Which checkpoint a folder's files mean."""

import pytest

from model.checkpoint_files import find, step_in_name
from util.errors import UserError


def touch(folder, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.index").touch()
        (folder / f"{name}.data-00000-of-00001").touch()


def test_a_copied_folder_means_its_own_files(tmp_path):
    """The `checkpoint` file of a copy names the files of the original, which may still be there."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        touch(folder, "model.ckpt-5", "model.ckpt-9")
        (folder / "checkpoint").write_text(f'model_checkpoint_path: "{old}/model.ckpt-5"\n')
    assert find(str(new)) == str(new / "model.ckpt-5")
    (new / "model.ckpt-5.index").unlink()
    assert find(str(new)) == str(old / "model.ckpt-5")
    (old / "model.ckpt-5.index").unlink()
    assert find(str(new)) == str(new / "model.ckpt-9")


def test_a_checkpoint_under_another_name(tmp_path):
    touch(tmp_path, "electra_small")
    assert find(str(tmp_path)) == str(tmp_path / "electra_small")
    touch(tmp_path, "electra_base")
    with pytest.raises(UserError, match=r"holds the checkpoints electra_base, electra_small and no `checkpoint` file"):
        find(str(tmp_path))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "electra_base"')
    assert find(str(tmp_path)) == str(tmp_path / "electra_base")


def test_step_in_name():
    assert [step_in_name(name) for name in ("m/model.ckpt-120", "m-7/electra_small", "electra-3")] == [120, 0, 3]
