"""Reading a tf.train.Example without TensorFlow, to look into shards before it starts."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_MESSAGES = {  # name: {field: (number, type)}; a map is a repeated message of key and value
    "Integers": {"value": (1, "int64")},
    "Feature": {"int64_list": (3, "Integers")},
    "Entry": {"key": (1, "string"), "value": (2, "Feature")},
    "Features": {"feature": (1, "Entry")},
    "Example": {"features": (1, "Features")},
}
_REPEATED = ("Integers.value", "Features.feature")


def _message_class() -> type:
    field_types = descriptor_pb2.FieldDescriptorProto
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
                field.type = {"int64": field_types.TYPE_INT64, "string": field_types.TYPE_STRING}[kind]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tf_example.Example"))


_EXAMPLE = _message_class()


def read_example(data: bytes) -> dict[str, list[int]]:
    """The integer features of a serialized tf.train.Example by name.

    Raises:
      google.protobuf.message.DecodeError: the bytes are none.
    """
    return {entry.key: list(entry.value.int64_list.value) for entry in _EXAMPLE.FromString(data).features.feature}
