"""Makes a long snapshot of PyTorch from two short ones.

    python3 long_snapshot.py RUN.pickle.gz STACKS.pickle.gz OUT.pickle EVENTS [--share-stacks]

The longest cycle of RUN (a range of events after which the live blocks and the segments are those before
it) is repeated at the same addresses. Its events get the stacks of the events of STACKS. As in the pickles of
PyTorch, each repetition has lists of its own, of shared frames; with --share-stacks they have the same lists,
which makes the file shorter per event.
"""

import gzip
import pickle
import struct
import sys

PAIRS = {"free_completed": "alloc", "segment_free": "segment_alloc", "segment_unmap": "segment_map"}


def longest_cycle(events):
    """Returns the first and the last event of the longest cycle, as a range."""
    state, seen, best = 0, {0: 0}, (0, 0)
    for index, event in enumerate(events, 1):
        action, place = event["action"], (event["addr"], event["size"]) if "addr" in event else None
        if action in PAIRS:
            state -= hash((PAIRS[action], place))
        elif action in PAIRS.values():
            state += hash((action, place))
        begin = seen.setdefault(state, index)
        best = max(best, (begin, index), key=lambda cycle: cycle[1] - cycle[0])
    return best


class Writer:
    """Writes plain data as CPython's pickler does, with the memo of `pickle` protocol 4."""

    def __init__(self, file):
        self.file, self.memo, self.kept, self.count = file, {}, [], 0
        file.write(b"\x80\x04")

    def get(self, index):
        return b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)

    def put(self, value):
        self.memo[id(value)] = self.count
        self.kept.append(value)
        self.count += 1
        return b"\x94"

    def record(self, value):
        """Returns the opcodes of a list or dict that is not shared."""
        self.count += 1
        if isinstance(value, list):
            return b"]\x94" + (b"(" + b"".join(map(self.value, value)) + b"e" if value else b"")
        return b"}\x94(" + b"".join(self.value(key) + self.value(one) for key, one in value.items()) + b"u"

    def value(self, value):
        """Returns the opcodes of a value."""
        if id(value) in self.memo:
            return self.get(self.memo[id(value)])
        match value:
            case None:
                return b"N"
            case bool():
                return b"\x88" if value else b"\x89"
            case int():
                return self.number(value)
            case float():
                return b"G" + struct.pack(">d", value)
            case str():
                text = sys.intern(value)
                if text is not value:
                    return self.value(text)
                raw = value.encode()
                head = b"\x8c" + bytes([len(raw)]) if len(raw) < 256 else b"X" + struct.pack("<I", len(raw))
                return head + raw + self.put(value)
            case dict():
                items = b"}" + self.put(value)
                pairs = b"".join(self.value(key) + self.value(one) for key, one in value.items())
                return items + (b"(" + pairs + b"u" if value else b"")
            case list():
                items = b"]" + self.put(value)
                return items + (b"(" + b"".join(map(self.value, value)) + b"e" if value else b"")
            case tuple():
                return b"(" + b"".join(map(self.value, value)) + b"t"
        raise TypeError(type(value))

    def number(self, value):
        if 0 <= value < 256:
            return b"K" + bytes([value])
        if 0 <= value < 65536:
            return b"M" + struct.pack("<H", value)
        if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(raw)]) + raw


def repetition(writer, cycle, offset, share):
    """Writes a cycle, `offset` microseconds later."""
    lists = {}
    for event in cycle:
        writer.count += 1
        parts = [b"}\x94("]
        for name, one in event.items():
            parts.append(writer.value(name))
            if name == "time_us":
                parts.append(writer.number(one + offset))
            elif name == "frames" and not share:
                if id(one) in lists:
                    parts.append(writer.get(lists[id(one)]))
                else:
                    lists[id(one)] = writer.count
                    parts.append(writer.record(one))
            else:
                parts.append(writer.value(one))
        parts.append(b"u")
        writer.file.write(b"".join(parts))


def main():
    run, stacks, target, count = *sys.argv[1:4], int(sys.argv[4])
    share = "--share-stacks" in sys.argv
    with gzip.open(run) as file:
        snapshot = pickle.load(file)
    with gzip.open(stacks) as file:
        stacks = [event.get("frames", []) for trace in pickle.load(file)["device_traces"] for event in trace]
    events = max(snapshot["device_traces"], key=len)
    for index, event in enumerate(events):
        event["frames"] = stacks[index % len(stacks)]
    begin, end = longest_cycle(events)
    cycle, rest = events[begin:end], events[end:]
    times = (count - begin - len(rest)) // len(cycle)
    duration = cycle[-1]["time_us"] - cycle[0]["time_us"] + 1
    for event in rest:
        event["time_us"] += duration * times
    with open(target, "wb") as file:
        writer = Writer(file)
        file.write(b"}" + writer.put(snapshot) + b"(")
        for key, value in snapshot.items():
            file.write(writer.value(key))
            if key != "device_traces":
                file.write(writer.value(value))
                continue
            file.write(b"]" + writer.put(value) + b"(")
            for trace in value:
                if trace is not events:
                    file.write(writer.value(trace))
                    continue
                file.write(b"]" + writer.put(trace) + b"(")
                for event in events[:begin]:
                    file.write(writer.value(event))
                for time in range(times):
                    repetition(writer, cycle, duration * time, share)
                for event in rest:
                    file.write(writer.value(event))
                file.write(b"e")
            file.write(b"e")
        file.write(b"u.")


main()
