#!/usr/bin/env python3
"""Prints what is hard to read in comments and documents, and fails where there is too much of it.

It looks at comments of Rust files and at prose of Markdown files, without code and tables.

It counts sentences of more than 40 words, phrases that the style avoids, and comment lines of more than 100 columns.

    .ci/english.py [--counts] [FILE_OR_FOLDER ...]

With `--counts`, only the number of each kind is printed.
"""

import os
import re
import sys

WORDS_MAX = 40
COLUMNS_MAX = 100

# How many there may be. Never raise these numbers.
LONG_SENTENCES_MAX = 1
PHRASES_MAX = 55
WIDE_LINES_MAX = 0

PHRASES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in [
        r"\bof which\b",
        r"\bso many\b",
        r"\bas many of\b",
        r"\bbut for\b",
        r"\bfor want of\b",
        r"\b(?:go|goes|going|gone|went) on\b",
        r"\bwho (?:writes|reads|wants|needs|makes)\b",
        r"(?:^|(?<=[.!?:;] ))What [^.?!]{1,80} is\b",
    ]
]

SKIPPED = {".git", "target", "data"}
COMMENT = re.compile(r"^\s*(?://[/!]?)(?P<text>[^\n]*)$")
ABBREVIATIONS = re.compile(r"\b(?:e\.g|i\.e|cf|vs|etc|Sec|sec|Fig|fig|No)\.")


def files_below(place):
    if os.path.isfile(place):
        yield place
        return
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        for name in sorted(names):
            if name.endswith((".rs", ".md")):
                yield os.path.join(folder, name)


def paragraphs_of_rust(lines):
    """Each block of comment lines, as the line where it begins and its text."""
    begin, texts, in_code = 0, [], False
    for number, line in enumerate(lines + [""], 1):
        found = COMMENT.match(line)
        text = found.group("text").strip() if found else ""
        if text.startswith("```"):
            in_code = not in_code
            text = ""
        is_prose = found and text and not in_code and not text.startswith(("|", "#"))
        if texts and (not is_prose or text.startswith(("- ", "* ")) or re.match(r"\d+\. ", text)):
            yield begin, " ".join(texts)
            texts = []
        if is_prose:
            begin = begin if texts else number
            texts.append(text)


def paragraphs_of_markdown(lines):
    """Each paragraph and list item."""
    begin, texts, in_code = 0, [], False
    for number, line in enumerate(lines + [""], 1):
        text = line.strip()
        if text.startswith("```"):
            in_code = not in_code
            text = ""
        is_prose = text and not in_code and not text.startswith(("|", "#", "<", ">"))
        if texts and (not is_prose or text.startswith(("- ", "* ")) or re.match(r"\d+\. ", text)):
            yield begin, " ".join(texts)
            texts = []
        if is_prose:
            begin = begin if texts else number
            texts.append(text)


def sentences(text):
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = ABBREVIATIONS.sub("CODE", text)
    return re.split(r"(?<=[.!?])\s+(?=[A-Z*(])", text)


def main(arguments):
    only_counts = "--counts" in arguments
    places = [argument for argument in arguments if not argument.startswith("--")] or ["."]
    long_sentences, phrases, wide = [], [], []
    for place in places:
        for path in files_below(place):
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
            is_rust = path.endswith(".rs")
            for number, line in enumerate(lines, 1):
                if is_rust and len(line) > COLUMNS_MAX and COMMENT.match(line):
                    wide.append(f"{path}:{number}: {len(line)} columns")
            for number, text in (paragraphs_of_rust if is_rust else paragraphs_of_markdown)(lines):
                for sentence in sentences(text):
                    words = len(sentence.split())
                    if words > WORDS_MAX:
                        long_sentences.append(f"{path}:{number}: {words} words: {sentence[:90]}")
                    for phrase in PHRASES:
                        phrases += [f"{path}:{number}: {found.group(0)!r}" for found in phrase.finditer(sentence)]
    kinds = [
        (f"sentences over {WORDS_MAX} words", long_sentences, LONG_SENTENCES_MAX),
        ("phrases to avoid", phrases, PHRASES_MAX),
        (f"comment lines over {COLUMNS_MAX} columns", wide, WIDE_LINES_MAX),
    ]
    has_failed = False
    for name, found, at_most in kinds:
        if not only_counts:
            print("\n".join(found))
        print(f"{name}: {len(found)}, and there may be {at_most}")
        has_failed |= len(found) > at_most
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
