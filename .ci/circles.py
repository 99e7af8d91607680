#!/usr/bin/env python3
"""Prints the circles of imports among the files of each crate, and fails if one is too large.

A file imports the file that defines what one of its `use` declarations names. Names are followed
through re-exports. A `pub use` counts only if its own file mentions the name elsewhere: a `mod.rs`
that hands names on ties nothing together. Left out are:

- modules and imports under `#[cfg(test)]`
- paths outside of `use`
- names that macros make

A circle is a set of files, each of which reaches every other one by imports.

    .ci/circles.py [--imports] [CRATE_FOLDER ...]

Without folders: all of `crates/`. With `--imports`, the imports within each circle are printed too.
"""

import os
import re
import sys

# Most files of a circle.
LIMIT = 5

TOKEN = re.compile(r"[A-Za-z_]\w*|::|[{}()\[\];,*#!=]|\S")

# Comments, strings and characters. A lifetime is none of them.
OPAQUE = re.compile(
    r"""
    (?P<line>//[^\n]*) | (?P<block>/\*) |
    b?c?r(?P<hashes>\#*)"(?:.*?)"(?P=hashes) | [bc]?"(?:\\.|[^"\\])*" |
    b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.)|[^'\\\n])'
    """,
    re.VERBOSE | re.DOTALL,
)

PATH = re.compile(r'#\[path\s*=\s*"([^"]*)"\s*\]')

ITEMS = {"struct", "enum", "trait", "fn", "const", "static", "type", "union"}
BEFORE_ITEMS = ITEMS | {"mod", "use", "impl", "pub", "unsafe", "async", "extern", "macro_rules"}


def code(text):
    """The text without comments, and with an empty string in place of each literal."""
    parts, at = [], 0
    while found := OPAQUE.search(text, at):
        start, end = found.span()
        # A word that ends with r begins no raw string.
        if found.group("hashes") is not None and start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_"):
            parts.append(text[at : start + 1])
            at = start + 1
            continue
        parts.append(text[at:start])
        if found.group("block"):
            end = end_of_comment(text, start)
        elif not found.group("line"):
            parts.append(text[start:end] if is_path(text, start) else '""')
        parts.append(" ")
        at = end
    return "".join(parts) + text[at:]


def is_path(text, start):
    """Whether a string is that of a `#[path = "…"]`."""
    return re.search(r"#\[path\s*=\s*$", text[max(0, start - 40) : start]) is not None


def end_of_comment(text, start):
    depth, at = 1, start + 2
    while depth and (found := re.compile(r"/\*|\*/").search(text, at)):
        depth += 1 if found.group() == "/*" else -1
        at = found.end()
    return at if depth == 0 else len(text)


class Module:
    """A module of a crate: its file, its items, and what it imports."""

    def __init__(self, file, parent, folder):
        self.file, self.parent, self.folder = file, parent, folder
        self.children, self.defined = {}, set()
        # Paths, each with the name that it binds: None for a glob.
        self.imports = []
        # Those of them that are handed on, and all words outside of `use`.
        self.handed_on, self.mentioned = [], set()

    def root(self):
        return self if self.parent is None else self.parent.root()


def is_of_tests(attribute):
    """Whether an item with this attribute exists in tests alone."""
    text = "".join(attribute)
    return text.startswith("cfg(") and re.search(r"\btest\b", re.sub(r"not\(test\)", "", text)) is not None


def load(file, parent, folder):
    """The module in a file; `folder` holds the files of its children."""
    with open(file, encoding="utf-8") as opened:
        text = code(opened.read())
    module = Module(file, parent, folder)
    read(TOKEN.findall(PATH.sub("#[path]", text)), module, iter(PATH.findall(text)))
    return module


def read(tokens, module, paths):
    """Reads the items of a file into a module."""
    # The modules around the current token, each with the depth of braces at which it ends.
    around, depth, at, attributes, is_public = [(module, 0)], 0, 0, [], False
    while at < len(tokens):
        token, current = tokens[at], around[-1][0]
        if token == "#" and tokens[at + 1 : at + 2] == ["["]:
            end = closing(tokens, at + 1)
            attributes.append(tokens[at + 2 : end])
            at = end + 1
            continue
        path = next(paths, None) if ["path"] in attributes and token == "mod" else None
        if token in BEFORE_ITEMS and any(is_of_tests(attribute) for attribute in attributes):
            attributes, at = [], end_of_item(tokens, at)
            continue
        if token == "pub":
            at, is_public = at + 1, True
            if tokens[at : at + 1] == ["("]:
                at = closing(tokens, at) + 1
            continue
        attributes, was_public, is_public = [], is_public, False
        # Not what an `impl Trait + use<…>` captures.
        if token == "use" and tokens[at + 1] != "<":
            end = tokens.index(";", at)
            found = names_of(tokens[at + 1 : end])
            current.imports += found
            current.handed_on += found if was_public else []
            at = end + 1
            continue
        if token == "mod" and tokens[at + 2 : at + 3] == [";"]:
            load_child(current, tokens[at + 1], path)
            at += 3
            continue
        if token == "mod" and tokens[at + 2 : at + 3] == ["{"]:
            name = tokens[at + 1]
            child = Module(current.file, current, os.path.join(current.folder, name))
            current.children[name] = child
            around.append((child, depth))
            depth, at = depth + 1, at + 3
            continue
        if token in ITEMS and depth == around[-1][1] + (len(around) > 1):
            current.defined.add(tokens[at + 1])
        if token == "macro_rules":
            current.defined.add(tokens[at + 2])
        current.mentioned.add(token)
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if len(around) > 1 and around[-1][1] == depth:
                around.pop()
        at += 1


def load_child(module, name, path):
    """Loads the module that `mod name;` declares, from the path of its attribute if it has one."""
    if path is not None:
        candidates = [os.path.join(os.path.dirname(module.file), path)]
    else:
        candidates = [os.path.join(module.folder, f"{name}.rs"), os.path.join(module.folder, name, "mod.rs")]
    for file in candidates:
        if os.path.isfile(file):
            is_folder = os.path.basename(file) == "mod.rs"
            folder = os.path.dirname(file) if is_folder or path else os.path.join(module.folder, name)
            module.children[name] = load(file, module, folder)
            return
    sys.exit(f"{module.file}: there is no file of the module {name}")


def closing(tokens, at):
    """The index of the bracket that closes the one at an index."""
    depth = 0
    for end in range(at, len(tokens)):
        depth += {"[": 1, "(": 1, "{": 1, "]": -1, ")": -1, "}": -1}.get(tokens[end], 0)
        if depth == 0:
            return end
    return len(tokens)


def end_of_item(tokens, at):
    """The index behind the item that begins at an index."""
    ends_with_body = True
    while at < len(tokens):
        token = tokens[at]
        if token in ("use", "const", "static", "type"):
            ends_with_body = tokens[at + 1] == "fn"
        if token == ";":
            return at + 1
        if token in ("(", "[", "{"):
            end = closing(tokens, at)
            if token == "{" and ends_with_body:
                return end + 1
            at = end
        at += 1
    return at


def names_of(tokens):
    """The paths of a `use`, each with the name that it binds: None for a glob."""
    found, at = [], 0

    def tree(prefix):
        nonlocal at
        path = list(prefix)
        while at < len(tokens):
            token = tokens[at]
            at += 1
            if token == "{":
                while tokens[at] != "}":
                    tree(path)
                    if tokens[at] == ",":
                        at += 1
                at += 1
                return
            if token == "*":
                found.append((path, None))
                return
            if token != "::":
                path.append(token)
            if at == len(tokens) or tokens[at] in (",", "}", "as"):
                break
        if len(path) > 1 and path[-1] == "self":
            path.pop()
        name = path[-1]
        if tokens[at : at + 1] == ["as"]:
            name = tokens[at + 1]
            at += 2
        found.append((path, name))

    tree([])
    return found


def resolve(module, path, seen=frozenset()):
    """The file that defines what a path names, and the module if it names one.

    None if the path leads to another crate.
    """
    first, rest = path[0], path[1:]
    if first == "crate":
        start = module.root()
    elif first == "self":
        start = module
    elif first == "super":
        start = module.parent
        while rest and rest[0] == "super":
            start, rest = start and start.parent, rest[1:]
    else:
        start, rest = module, path
        if not holds(module, first, seen):
            return None
    if start is None:
        return None
    for number, name in enumerate(rest):
        if name in start.children:
            start = start.children[name]
            continue
        return follow(start, name, rest[number + 1 :], seen)
    return start.file, start


def holds(module, name, seen):
    """Whether a name that begins a path in a module is one of this crate."""
    if name in module.children or name in module.defined:
        return True
    return follow(module, name, [], seen) is not None and any(bound == name for _, bound in module.imports)


def follow(module, name, rest, seen):
    """As `resolve`, for a name that is no child of a module: one that it imports, or its own."""
    if (module, name) in seen:
        return module.file, None
    seen = seen | {(module, name)}
    if name not in module.defined:
        for path, bound in module.imports:
            # `use name;` says nothing of what the name is.
            if bound == name and path != [name]:
                found = resolve(module, path, seen)
                if found is None or found[1] is None or not rest:
                    return found
                return resolve(found[1], ["self", *rest], seen)
        for path, bound in module.imports:
            target = resolve(module, path, seen)[1] if bound is None and resolve(module, path, seen) else None
            if target and (name in target.defined or name in target.children or any(n == name for _, n in target.imports)):
                return resolve(target, ["self", name, *rest], seen)
    return module.file, None


def edges(module, imports):
    """Adds what each file imports of other files."""
    for path, bound in module.imports:
        if (path, bound) in module.handed_on and bound not in module.mentioned:
            continue
        found = resolve(module, path)
        if found and found[0] != module.file:
            imports.setdefault(module.file, {}).setdefault(found[0], set()).add(bound or "*")
    for child in module.children.values():
        edges(child, imports)


def circles(imports):
    """The circles (strongly connected components, Tarjan 1972), the largest first."""
    found, stack, number, low = [], [], {}, {}

    def visit(file):
        number[file] = low[file] = len(number)
        stack.append(file)
        for other in imports.get(file, ()):
            if other not in number:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], number[other])
        if low[file] == number[file]:
            at = stack.index(file)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for file in sorted(imports):
        if file not in number:
            visit(file)
    return sorted(found, key=lambda circle: (-len(circle), circle))


def imports_of(crate):
    """What each file of a crate imports of others, in its library and its program."""
    imports = {}
    for root in ("lib.rs", "main.rs"):
        file = os.path.join(crate, "src", root)
        if os.path.isfile(file):
            edges(load(file, None, os.path.dirname(file)), imports)
    return imports


def main(arguments):
    sys.setrecursionlimit(10_000)
    tells_imports = "--imports" in arguments
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "crates")
    crates = [argument for argument in arguments if argument != "--imports"]
    crates = crates or [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    has_failed = False
    for crate in crates:
        name = os.path.basename(os.path.normpath(crate))
        imports = imports_of(crate)
        found = circles(imports)
        sizes = ", ".join(str(len(circle)) for circle in found)
        print(f"{name}: " + (f"circles of {sizes} files" if found else "no circles of imports"))
        for circle in found:
            print("  " + " ".join(os.path.relpath(file, os.path.join(crate, "src")) for file in circle))
            if len(circle) > LIMIT:
                has_failed = True
                print(f"  ^ {len(circle)} files, and there may be {LIMIT}", file=sys.stderr)
            for file in circle if tells_imports else ():
                for other in sorted(set(imports[file]) & set(circle)):
                    ends = [os.path.relpath(end, os.path.join(crate, "src")) for end in (file, other)]
                    print(f"    {' -> '.join(ends)}: {', '.join(sorted(imports[file][other]))}")
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
