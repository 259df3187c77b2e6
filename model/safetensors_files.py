"""Files of weights in the safetensors format, one or several with an index. Needs no TensorFlow.

Tensors are read one at a time, when they are asked for, and written one at a time.
"""

import contextlib
import json
import os
import weakref
from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes  # noqa: F401  gives NumPy bfloat16
import numpy as np
from safetensors import SafetensorError, safe_open

from model.checkpoint_files import SAFETENSORS, SAFETENSORS_INDEX
from util import filesystem
from util.errors import UserError
from util.files import read_json, write_json

SHARD_BYTES = 1_000_000_000  # the most that one file of weights holds; ELECTRA-Large takes two
_FLOATS = ("F32", "F16", "BF16", "F64")


class SafetensorsReader:
    """Tensors by name, floats as float32; `path` is a .safetensors file or the index of several.

    Raises:
      UserError: a file is missing, damaged, or its header claims what the file does not hold.
    """

    def __init__(self, path: str):
        self.path = path
        self.shapes: dict[str, list[int]] = {}
        self._files: dict[str, str] = {}
        self._types: dict[str, str] = {}
        copies = contextlib.ExitStack()  # of remote files, as long as this object lives
        weakref.finalize(self, copies.close)
        for file in self._shards() if path.endswith(".json") else [path]:
            file = copies.enter_context(filesystem.local_copy(file))
            with _open(file) as tensors:
                for name in tensors.keys():
                    part = tensors.get_slice(name)
                    self.shapes[name], self._types[name] = list(part.get_shape()), part.get_dtype()
                    self._files[name] = file

    def _shards(self) -> list[str]:
        index = read_json(self.path, "index of a model's shards")
        if not isinstance(index, dict) or not isinstance(index.get("weight_map"), dict):
            raise UserError(f'{self.path} is no index of shards: it has no "weight_map"')
        names = sorted({os.path.basename(str(name)) for name in index["weight_map"].values()})
        paths = [os.path.join(os.path.dirname(self.path), name) for name in names]
        if missing := [path for path in paths if not filesystem.exists(path)]:
            raise UserError(f"{self.path} names shards that are not beside it: {', '.join(missing)}; copy them too")
        return paths

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> np.ndarray:
        with _open(self._files[name]) as tensors:  # anew each time, so that mapped pages do not add up
            value = tensors.get_tensor(name)
        return value.astype(np.float32, copy=False) if self._types[name] in _FLOATS else value


def _open(file: str):
    try:
        return safe_open(file, framework="np")
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"cannot read {file} as safetensors: {error}. It is cut short, damaged or of another format; copy it again"
        ) from error


class Tensor(NamedTuple):
    """A float32 tensor to be written, made when its turn comes."""

    name: str
    shape: list[int]
    read: Callable[[], np.ndarray]

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        return 4 * int(np.prod(self.shape))


def write_safetensors(folder: str, tensors: list[Tensor], shard_bytes: int = SHARD_BYTES) -> None:
    """Writes model.safetensors, or shards and their index where it would hold more than `shard_bytes`."""
    shards = _in_shards(tensors, shard_bytes)
    if len(shards) == 1:
        _write_file(os.path.join(folder, SAFETENSORS), tensors)
        return
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write_file(os.path.join(folder, name), shard)
        weight_map.update({tensor.name: name for tensor in shard})
    total = sum(tensor.bytes for tensor in tensors)
    write_json(os.path.join(folder, SAFETENSORS_INDEX), {"metadata": {"total_size": total}, "weight_map": weight_map})


def _in_shards(tensors: list[Tensor], most: int) -> list[list[Tensor]]:
    shards: list[list[Tensor]] = [[]]
    for tensor in tensors:
        if shards[-1] and sum(t.bytes for t in shards[-1]) + tensor.bytes > most:
            shards.append([])
        shards[-1].append(tensor)
    return shards


def _write_file(path: str, tensors: list[Tensor]) -> None:
    """The format: the header's length (8 bytes, little-endian), the header as JSON, the tensors' bytes."""
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        begin, end = end, end + tensor.bytes
        header[tensor.name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors start at a multiple of 8 bytes
    with filesystem.open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            file.write(np.ascontiguousarray(tensor.read(), dtype="<f4").data)
        filesystem.settle(file)
