"""The PyTorch side of the tests with transformers, run by an interpreter that has them, offline.

    python pytorch_side.py logits CLASS FOLDER INPUTS.npz OUTPUTS.npz     what a model of that class computes
    python pytorch_side.py tokens FOLDER TEXTS.json IDS.json              what AutoTokenizer makes of texts
    python pytorch_side.py save CLASS FOLDER CONFIG.json                  a fresh model, saved there
"""

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers


def logits(architecture: str, folder: str, inputs: str, outputs: str) -> None:
    """Loads with no weight missing and none unexpected but those that the model has no use for."""
    model, info = getattr(transformers, architecture).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    assert architecture == "ElectraModel" or not info["unexpected_keys"], info
    arrays = np.load(inputs)
    with torch.no_grad():
        result = model.eval()(
            input_ids=torch.tensor(arrays["ids"]).long(),
            attention_mask=torch.tensor(arrays["mask"]).long(),
            token_type_ids=torch.tensor(arrays["segments"]).long(),
        )
    names = ("logits", "start_logits", "end_logits", "last_hidden_state")
    np.savez(outputs, **{name: result[name].numpy() for name in names if name in result})


def tokens(folder: str, texts: str, ids: str) -> None:
    """Encodes texts with special tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with open(texts, encoding="utf-8") as file:
        encoded = [tokenizer(text)["input_ids"] for text in json.load(file)]
    with open(ids, "w", encoding="utf-8") as file:
        json.dump(encoded, file)


def save(architecture: str, folder: str, config: str, shard_size: str = "5GB") -> None:
    """Weights with other values than a fresh model's zeros and ones, so that a mix-up shows."""
    torch.manual_seed(3)
    model_class = getattr(transformers, architecture)
    model = model_class(model_class.config_class(**json.loads(config)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder, max_shard_size=shard_size)


if __name__ == "__main__":
    {"logits": logits, "tokens": tokens, "save": save}[sys.argv[1]](*sys.argv[2:])
