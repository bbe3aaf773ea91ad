#!/usr/bin/env python3
"""Lets a shared library be loaded where a version of symbols that it refers to is missing.

    scripts/loosen_version.py FILE VERSION      VERSION: such as GLIBCXX_3.4.30

What FILE (ELF, 64 bits, little-endian) takes in VERSION it then takes in the version that the library
at hand has by default, and the reference to VERSION becomes weak, as the dynamic linker calls it. Right
only where older versions of these symbols do the same. A file without such a reference stays as it is.
"""

import struct
import sys

VERSION_NEEDS, VERSION_OF_SYMBOLS = 0x6FFFFFFE, 0x6FFFFFFF  # types of sections
WEAK = 0x2
UNVERSIONED = 1  # in the table of the symbols' versions


def sections_of(data):
    """(type, offset, size, link) of each section."""
    if data[:6] != b"\x7fELF\x02\x01":
        sys.exit("loosen_version.py: not an ELF file of 64 bits, little-endian")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    for place in range(table, table + size * count, size):
        kind, = struct.unpack_from("<I", data, place + 4)
        offset, length, link = struct.unpack_from("<QQI", data, place + 24)
        yield kind, offset, length, link


def version_references(data, needs, names):
    """Where each Vernaux is, and its name; `needs` and `names`: offsets of sections."""
    entry = needs
    while True:
        _, count, _, first, next_entry = struct.unpack_from("<HHIII", data, entry)
        place = entry + first
        for _ in range(count):
            name, next_place = struct.unpack_from("<II", data, place + 8)
            end = data.index(b"\0", names + name)
            yield place, data[names + name:end].decode()
            place += next_place
        if next_entry == 0:
            return
        entry += next_entry


def loosen(data, version):
    sections = list(sections_of(data))
    by_kind = {kind: (offset, size, link) for kind, offset, size, link in sections}
    if VERSION_NEEDS not in by_kind:
        return
    needs, _, link = by_kind[VERSION_NEEDS]
    table, size, _ = by_kind[VERSION_OF_SYMBOLS]
    for place, name in version_references(data, needs, sections[link][1]):
        if name != version:
            continue
        flags, index = struct.unpack_from("<HH", data, place + 4)
        struct.pack_into("<H", data, place + 4, flags | WEAK)
        for symbol in range(table, table + size, 2):
            if struct.unpack_from("<H", data, symbol)[0] & 0x7FFF == index:
                struct.pack_into("<H", data, symbol, UNVERSIONED)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], "r+b") as file:
        data = bytearray(file.read())
        loosen(data, sys.argv[2])
        file.seek(0)
        file.write(data)


if __name__ == "__main__":
    main()
