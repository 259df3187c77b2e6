"""What an example looks like to the model and to the scorer: named features, stored unpadded."""

from typing import NamedTuple

LENGTH = -1  # an axis as long as the batch, padded with zeros
Features = dict[str, int | float | list[int] | list[float]]  # of one example (for QA: one window), by name


class FeatureSpec(NamedTuple):
    """One feature of a task beside input_ids and segment_ids, which every example has.

    Names start with the task's: mnli_label_ids. An example of another task in the same batch has zeros there.
    """

    name: str
    shape: tuple[int, ...] = ()  # of one example: (), (LENGTH,) or (n,)
    is_int: bool = True
    on_device: bool = True  # false: for the scorer alone, a list of any length
