#!/usr/bin/env python3
"""What `circles.py` takes for an import, each way on a crate of a few files."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import circles


def found(files):
    """The circles of a crate with these files."""
    with tempfile.TemporaryDirectory() as crate:
        for name, text in files.items():
            file = os.path.join(crate, "src", name)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "w", encoding="utf-8") as opened:
                opened.write(text)
        of_crate = circles.circles(circles.imports_of(crate))
        return [[os.path.relpath(file, os.path.join(crate, "src")) for file in circle] for circle in of_crate]


BOTH = "mod a; mod b;"
CIRCLE = [["a.rs", "b.rs"]]


class Imports(unittest.TestCase):
    def test_files_that_import_each_other_are_a_circle(self):
        for use in ("use crate::a::A;", "use super::a::{A as Other, B};", "pub(crate) fn f() { use crate::a::*; }"):
            with self.subTest(use):
                files = {"lib.rs": BOTH, "a.rs": "use super::b::f; pub struct A; pub struct B;", "b.rs": f"{use} pub fn f() {{}}"}
                self.assertEqual(found(files), CIRCLE)

    def test_one_direction_is_no_circle(self):
        files = {"lib.rs": BOTH, "a.rs": "use super::b::{self, f}; pub struct A;", "b.rs": "use std::a::A; pub fn f() {}"}
        self.assertEqual(found(files), [])

    def test_names_are_followed_through_re_exports_to_the_files_that_define_them(self):
        lib = "mod a; mod b; pub use a::inner::A; pub use b::*;"
        a = "pub mod inner; pub use inner::A as Handed;"
        for use in ("use crate::A;", "use crate::a::Handed;", "use crate::a::{inner, inner::A};", "use crate::{a::{inner::{self}}};"):
            for back in ("use crate::b::f;", "use super::super::f;", "use crate::f;"):
                with self.subTest(f"{use} {back}"):
                    files = {"lib.rs": lib, "a/mod.rs": a, "a/inner.rs": f"{back} pub struct A;", "b.rs": f"{use} pub fn f() {{}}"}
                    self.assertEqual(found(files), [["a/inner.rs", "b.rs"]])

    def test_a_module_that_hands_names_on_is_tied_by_those_that_it_mentions_itself(self):
        files = {"lib.rs": "mod a;", "a.rs": "mod inner; pub use inner::A; pub struct B;", "a/inner.rs": "use super::B; pub struct A;"}
        self.assertEqual(found(files), [])
        files["a.rs"] += " pub fn f(_: A) {}"
        self.assertEqual(found(files), [["a.rs", "a/inner.rs"]])

    def test_what_is_there_in_tests_alone_is_left_out(self):
        tests = "#[cfg(test)] mod tests { use crate::a::A; }"
        for left_out in (tests, "#[cfg(all(test, not(loom)))] mod more;", "#[cfg(test)] use crate::{a::A};"):
            with self.subTest(left_out):
                files = {"lib.rs": BOTH, "a.rs": "use super::b::f; pub struct A;", "b.rs": f"{left_out} pub fn f() {{}}"}
                files["b/more.rs"] = "use crate::a::A;"
                self.assertEqual(found(files), [])
        files["b.rs"] = "#[cfg(not(test))] mod inner { use crate::a::A; } pub fn f() {}"
        self.assertEqual(found(files), CIRCLE)

    def test_comments_texts_and_lifetimes_are_no_imports(self):
        b = """// use crate::a::A;
            /* /* */ use crate::a::A; */
            pub fn f<'a>(_: &'a str) -> [char; 2] { let _ = "\\" use crate::a::A;"; let _ = r#" " use crate::a::A;"#; ['"', '\\''] }
            pub fn g<T>() -> impl Sized + use<T> {}"""
        files = {"lib.rs": BOTH, "a.rs": "use super::b::f; pub struct A;", "b.rs": b}
        self.assertEqual(found(files), [])
        files["b.rs"] += "use crate::a::A;"
        self.assertEqual(found(files), CIRCLE)

    def test_a_file_is_found_where_its_path_says(self):
        lib = '#[path = "elsewhere/a.rs"] mod a; mod b;'
        files = {"lib.rs": lib, "elsewhere/a.rs": "use super::b::f; pub struct A;", "b.rs": "use super::a::A; pub fn f() {}"}
        self.assertEqual(found(files), [["b.rs", "elsewhere/a.rs"]])


if __name__ == "__main__":
    unittest.main()
