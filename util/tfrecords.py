"""TFRecord files: framing with checksums, and random access to the records of a shard.

A record is its length (8 bytes, little-endian), the masked CRC-32C of that, the data, and the data's masked CRC-32C.
"""

import array
import mmap
import os
import struct

import google_crc32c

from util import filesystem

HEADER, FOOTER = 12, 4
_LENGTH = struct.Struct("<QI")
_CRC = struct.Struct("<I")


class CorruptRecord(Exception):
    """A record whose checksum or length is wrong: says file, offset and what is wrong."""


def masked_crc(data: bytes) -> int:
    """TFRecord's checksum of some bytes."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record_bytes(data: bytes) -> bytes:
    """Some data as a record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return b"".join((length, _CRC.pack(masked_crc(length)), data, _CRC.pack(masked_crc(data))))


class Shard:
    """The records of one TFRecord file, in their order, by number.

    Opening finds where the records are (their lengths alone are read and checked); `shard[i]` reads and checks one.

    Raises:
      CorruptRecord: on opening, where a record's length is wrong or the file ends inside a record; with
        `tolerant`, `fault` holds the message instead and the records before that place can be read.
    """

    def __init__(self, path: str, tolerant: bool = False):
        self.path = path
        self.fault: str | None = None
        self.offsets = array.array("q")
        with filesystem.local_copy(path) as local, open(local, "rb") as file:
            size = os.fstat(file.fileno()).st_size  # the pages of a copy stay when its name has gone
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        self._find_records(size)
        if self.fault and not tolerant:
            raise CorruptRecord(self.fault)

    def _find_records(self, size: int) -> None:
        offset, data, unpack, crc = 0, self.bytes, _LENGTH.unpack_from, google_crc32c.value
        while offset < size:
            if offset + HEADER > size:
                self.fault = f"{self.path}: the file ends inside a record at byte {offset}"
                return
            length, stored = unpack(data, offset)
            found = crc(data[offset : offset + 8])
            if ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF != stored:
                self.fault = f"{self.path}: wrong checksum of a record's length at byte {offset}"
                return
            if offset + HEADER + length + FOOTER > size:
                self.fault = f"{self.path}: the file ends inside the record at byte {offset}"
                return
            self.offsets.append(offset)
            offset += HEADER + length + FOOTER

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> bytes:
        offset = self.offsets[index]
        length, _ = _LENGTH.unpack_from(self.bytes, offset)
        start = offset + HEADER
        data = self.bytes[start : start + length]
        if _CRC.unpack_from(self.bytes, start + length)[0] != masked_crc(data):
            raise CorruptRecord(f"{self.path}: wrong checksum of the record at byte {offset}")
        return data


def first_record(path: str) -> bytes | None:
    """The first record of a file without looking at the others; None where it holds none.

    Raises:
      CorruptRecord: it is cut short or its checksum is wrong.
    """
    with filesystem.open(path, "rb") as file:
        head = file.read(HEADER)
        if not head:
            return None
        if len(head) == HEADER:
            length, stored = _LENGTH.unpack(head)
            if stored == masked_crc(head[:8]):
                data, footer = file.read(length), file.read(FOOTER)
                if len(footer) == FOOTER and _CRC.unpack(footer)[0] == masked_crc(data):
                    return data
    raise CorruptRecord(f"{path}: wrong checksum or end of the file in the record at byte 0")
