"""tf.train.Example without TensorFlow: reading and writing integer and float features."""

from collections.abc import Mapping, Sequence

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_MESSAGES = {  # name: {field: (number, type)}; a map is a repeated message of key and value
    "Floats": {"value": (1, "float")},
    "Integers": {"value": (1, "int64")},
    "Feature": {"float_list": (2, "Floats"), "int64_list": (3, "Integers")},
    "Entry": {"key": (1, "string"), "value": (2, "Feature")},
    "Features": {"feature": (1, "Entry")},
    "Example": {"features": (1, "Features")},
}
_REPEATED = ("Floats.value", "Integers.value", "Features.feature")


def _message_class() -> type:
    field_types = descriptor_pb2.FieldDescriptorProto
    types = {"float": field_types.TYPE_FLOAT, "int64": field_types.TYPE_INT64, "string": field_types.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(name="tf_example", package="tf_example", syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            repeated = f"{message}.{name}" in _REPEATED
            field = described.field.add(name=name, number=number)
            field.label = field_types.LABEL_REPEATED if repeated else field_types.LABEL_OPTIONAL
            if kind in _MESSAGES:
                field.type, field.type_name = field_types.TYPE_MESSAGE, f".tf_example.{kind}"
            else:
                field.type = types[kind]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tf_example.Example"))


_EXAMPLE = _message_class()


def read_example(data: bytes) -> dict[str, list[int] | list[float]]:
    """The integer and float features of a serialized tf.train.Example by name.

    Raises:
      google.protobuf.message.DecodeError: the bytes are none.
    """
    features = {}
    for entry in _EXAMPLE.FromString(data).features.feature:
        value = entry.value
        features[entry.key] = list(value.float_list.value) or list(value.int64_list.value)
    return features


def example_bytes(ints: Mapping[str, Sequence[int]], floats: Mapping[str, Sequence[float]]) -> bytes:
    """Features as a serialized tf.train.Example: in the order of their names, so that equal features give equal bytes.

    Floats keep 32 bits.
    """
    message = _EXAMPLE()
    for name in sorted([*ints, *floats]):
        entry = message.features.feature.add(key=name)
        if name in ints:
            entry.value.int64_list.value.extend(ints[name])
        else:
            entry.value.float_list.value.extend(floats[name])
    return message.SerializeToString()
