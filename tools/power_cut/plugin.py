"""An nbdkit plugin: a disk in memory with a write cache that is lost when the power is cut, as in a real disk.

    nbdkit python plugin.py image=FILE cut=FILE seed=NUMBER

What was flushed is in `image`. As soon as a file `cut` exists, the power is off: of what was not flushed some sectors
reach the image, in any version that was written and in any order, `cut`.done is made, and every request fails.
"""

import mmap
import os
import random

import nbdkit

API_VERSION = 2
SECTOR = 512
CHANCES = (0, 0.1, 0.5, 0.5, 0.9, 1)  # that a sector in the cache reaches the disk

settings = {}
disk = None


class Disk:
    def __init__(self, image):
        file = os.open(image, os.O_RDWR)
        self.durable = mmap.mmap(file, 0)
        os.close(file)
        self.shown = mmap.mmap(-1, len(self.durable))
        self.cached = {}  # sector → its versions since the last flush, oldest first
        self.on = True

    def write(self, offset, data):
        self.shown[offset : offset + len(data)] = data
        for sector in sectors(offset, len(data)):
            self.cached.setdefault(sector, []).append(self.shown[place(sector)])

    def keep(self, chosen):
        """Make the newest version of these sectors durable."""
        for sector in chosen:
            versions = self.cached.pop(sector, None)
            if versions:
                self.durable[place(sector)] = versions[-1]

    def check_power(self):
        if self.on and os.path.exists(settings["cut"]):
            self.on = False
            self.lose()
            os.close(os.open(settings["cut"] + ".done", os.O_CREAT | os.O_WRONLY))
        if not self.on:
            nbdkit.set_error(5)  # EIO
            raise RuntimeError("the power is off")

    def lose(self):
        rng = random.Random(int(settings["seed"]))
        chance = rng.choice(CHANCES)
        for sector, versions in sorted(self.cached.items()):
            if rng.random() < chance:
                self.durable[place(sector)] = rng.choice(versions)


def place(sector):
    return slice(sector * SECTOR, (sector + 1) * SECTOR)


def sectors(offset, length):
    return range(offset // SECTOR, -(-(offset + length) // SECTOR))


# What nbdkit calls


def config(key, value):
    settings[key] = value


def thread_model():
    return nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS


def open(readonly):
    global disk
    disk = disk or Disk(settings["image"])
    return disk


def get_size(disk):
    return len(disk.durable)


def can_write(disk):
    return True


def can_flush(disk):
    return True


def can_fua(disk):
    return nbdkit.FUA_NATIVE


def pread(disk, buffer, offset, flags):
    disk.check_power()
    buffer[:] = disk.shown[offset : offset + len(buffer)]


def pwrite(disk, buffer, offset, flags):
    disk.check_power()
    disk.write(offset, bytes(buffer))
    if flags & nbdkit.FLAG_FUA:
        disk.keep(sectors(offset, len(buffer)))


def flush(disk, flags):
    disk.check_power()
    disk.keep(list(disk.cached))
