"""Training and evaluation sequences: book text with records scattered through it and queries for them later.

    [Record] Patient Kalo-17 takes zelvim.   …book text…   [Query] Patient Kalo-17 takes zelvim.

Names and values are random syllables, so a value can only come from the context. One in eight names and values (by a
hash) is never used in training: evaluation uses only those. Some queries ask for a name that has no record; their answer
is " unknown.", so that a session whose record was forgotten says so instead of making up a value.
"""

import zlib

import numpy as np

CONSONANTS = "bdfgklmnprstvz"
VOWELS = "aeiou"
CODAS = "lmnrsxd"
FIELDS = [("Patient", "takes"), ("Guest", "drinks"), ("Client", "owns"), ("Agent", "carries"), ("Device", "runs"), ("Room", "holds")]
ANSWER_WEIGHT = 4.0
UNKNOWN = " unknown."
UNKNOWN_SHARE = 0.35  # of the sequences with records also hold one to three queries without a record
MAIN_FIELD_SHARE = 0.5  # of the sequences use only the first field, the one the quickstart shows


def is_heldout(word):
    return zlib.crc32(word.encode()) % 8 == 0


def _syllables(rng, count, coda):
    return "".join(CONSONANTS[rng.integers(14)] + VOWELS[rng.integers(5)] + (CODAS[rng.integers(7)] if coda else "")
                   for _ in range(count))


def make_name(rng, heldout):
    while True:
        name = _syllables(rng, 2, False).capitalize() + f"-{rng.integers(10, 100)}"
        if is_heldout(name) == heldout:
            return name


def make_value(rng, heldout):
    """5 to 8 letters: zelvim, kador, munapas."""
    while True:
        style = rng.integers(4)
        if style < 2:
            word = _syllables(rng, 2, True)
        else:
            word = _syllables(rng, int(style) - 1, False) + _syllables(rng, 1, True)
        if len(word) >= 5 and is_heldout(word) == heldout:
            return word


def make_records(rng, count, heldout, main_only):
    """Distinct names; returns [(statement, question, answer)]."""
    names, out = set(), []
    while len(out) < count:
        name = make_name(rng, heldout)
        if name in names:
            continue
        names.add(name)
        subject, verb = FIELDS[0] if main_only else FIELDS[rng.integers(len(FIELDS))]
        value = make_value(rng, heldout)
        out.append((f"[Record] {subject} {name} {verb} {value}.", f"[Query] {subject} {name} {verb}", f" {value}."))
    return out


def similar_name(rng, name):
    """The same name with another number, or a number with another name: the whole name has to match."""
    word, number = name.split("-")
    if rng.random() < 0.5:
        return f"{word}-{rng.integers(10, 100)}"
    return f"{_syllables(rng, 2, False).capitalize()}-{number}"


def unknown_queries(rng, count, records, heldout, main_only):
    """Questions about names that no record has; a third are near misses of a recorded name."""
    known = {s.split()[2] for s, _, _ in records}
    out = []
    while len(out) < count:
        name = make_name(rng, heldout)
        if known and rng.random() < 0.33:
            name = similar_name(rng, sorted(known)[rng.integers(len(known))])
        if name in known:
            continue
        subject, verb = FIELDS[0] if main_only else FIELDS[rng.integers(len(FIELDS))]
        out.append(f"[Query] {subject} {name} {verb}")
    return out


def book_slice(rng, text, length):
    start = int(rng.integers(0, len(text) - length - 1))
    return text[start:start + length]


def snap(book, cut):
    """Insert at the start of a line where one is near: that is where a record would stand."""
    for back in range(min(cut, 40)):
        if book[cut - 1 - back] == 10:
            return cut - back
    return cut


def assemble(rng, book, items):
    """items [(cut, text, answer)] in any order -> (bytes, [(start, end) of answers]). Separators vary a little."""
    parts, spans, done, length = [], [], 0, 0
    for cut, text, answer in items:
        piece = book[done:cut].tobytes()
        done = cut
        lead = b"" if (length + len(piece) == 0 or piece[-1:] == b"\n") else b"\n"
        if rng.random() < 0.1:
            lead = b" "
        head = piece + lead + text.encode()
        parts.append(head)
        length += len(head)
        if answer is not None:
            spans.append((length, length + len(answer)))
            parts.append(answer.encode())
            length += len(answer)
        tail = b" " if rng.random() < 0.1 else b"\n"
        parts.append(tail)
        length += 1
    parts.append(book[done:].tobytes())
    return b"".join(parts), spans


def training_sequence(rng, text, length):
    """`length` bytes and the answers' spans. A fifth of the sequences is plain text."""
    if rng.random() < 0.2:
        return book_slice(rng, text, length).tobytes(), []
    limit = max(1, min(12, length // 128))
    count = int(rng.choice([c for c in (0, 1, 2, 4, 6, 8, 12) if c <= limit]))
    main_only = rng.random() < MAIN_FIELD_SHARE
    records = make_records(rng, count, False, main_only)
    asked = int(rng.integers(1, 4)) if count == 0 or rng.random() < UNKNOWN_SHARE else 0
    unknown = unknown_queries(rng, asked, records, False, main_only)
    inserted = sum(2 * len(s) + len(a) + 4 for s, _, a in records) + 44 * asked
    book_len = max(length - inserted, 64)
    book = book_slice(rng, text, book_len)
    items = []
    for statement, question, answer in records:
        first = snap(book, int(rng.integers(0, max(1, int(0.7 * book_len)))))
        last = book_len if rng.random() < 0.5 else snap(book, int(rng.integers(first + (book_len - first) // 3, book_len + 1)))
        items.append((first, 0, rng.random(), statement, None))
        items.append((max(last, first), 1, rng.random(), question, answer))
    for question in unknown:
        last = book_len if rng.random() < 0.6 else snap(book, int(rng.integers(0, book_len + 1)))
        items.append((last, 1, rng.random(), question, UNKNOWN))
    items.sort(key=lambda e: e[:3])
    data, spans = assemble(rng, book, [(c, s, a) for c, _, _, s, a in items])
    if len(data) < length:
        data += book_slice(rng, text, length - len(data)).tobytes()
    return data[:length], [(b, e) for b, e in spans if e <= length]


def training_batch(rng, text, batch, tokens):
    """ids [B, T+1] uint8 and weight [B, T]: how much the prediction of ids[t+1] counts."""
    ids = np.zeros((batch, tokens + 1), np.uint8)
    weight = np.ones((batch, tokens), np.float32)
    for i in range(batch):
        data, spans = training_sequence(rng, text, tokens + 1)
        ids[i] = np.frombuffer(data, np.uint8)
        for begin, end in spans:
            weight[i, begin - 1:end - 1] = ANSWER_WEIGHT
    return ids, weight


def evaluation_case(rng, text, min_back=1000, lengths=(1100, 1900), records=(1, 8)):
    """One query at the end for a record at least min_back bytes before it. -> (prompt bytes, answer bytes, distance)."""
    length = int(rng.integers(*lengths))
    count = int(rng.integers(records[0], records[1] + 1))
    items = make_records(rng, count, True, True)
    book_len = length - sum(len(s) + 2 for s, _, _ in items) - len(items[0][1]) - 1
    book = book_slice(rng, text, book_len)
    target = int(rng.integers(0, max(1, length - min_back - 150)))
    cuts = [target] + [int(rng.integers(0, book_len)) for _ in items[1:]]
    placed = sorted(((snap(book, c), i) for i, c in enumerate(cuts)))
    data, _ = assemble(rng, book, [(c, items[i][0], None) for c, i in placed])
    _, question, answer = items[0]
    prompt = data + (b"" if data.endswith(b"\n") else b"\n") + question.encode()
    back = len(prompt) - prompt.index(items[0][0].encode()) - len(items[0][0])
    if back < min_back:  # other records fell behind the target's place: draw again
        return evaluation_case(rng, text, min_back, lengths, records)
    return prompt, answer.encode(), back


def forgotten_case(case):
    """The same prompt with the queried record's line taken out, as Forget does; the right answer is then UNKNOWN."""
    prompt, answer, back = case
    question = prompt[prompt.rindex(b"[Query]"):]
    record = question.replace(b"[Query]", b"[Record]") + answer
    at = prompt.index(record)
    return prompt[:at] + prompt[at + len(record) + 1:], UNKNOWN.encode(), back


def load_text(path, limit=None):
    """Bytes of a text file, .xz read through lzma."""
    if path.endswith(".xz"):
        import lzma
        with lzma.open(path) as f:
            return np.frombuffer(f.read(limit) if limit else f.read(), np.uint8)
    with open(path, "rb") as f:
        return np.frombuffer(f.read(limit) if limit else f.read(), np.uint8)
