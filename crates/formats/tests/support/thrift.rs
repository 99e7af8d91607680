//! Structs in Thrift's compact protocol, with whatever types and counts a test wants.

/// Types of values, as they are written.
pub const TRUE: u8 = 1;
pub const I32: u8 = 5;
pub const I64: u8 = 6;
pub const DOUBLE: u8 = 7;
pub const BINARY: u8 = 8;
pub const LIST: u8 = 9;
pub const STRUCT: u8 = 12;

/// A number in seven bits a byte, the lowest ones first.
pub fn variable(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// An integer, whose sign is the lowest bit.
pub fn integer(number: i64) -> Vec<u8> {
    variable((number << 1 ^ number >> 63) as u64)
}

pub fn text(text: &str) -> Vec<u8> {
    [&variable(text.len() as u64), text.as_bytes()].concat()
}

/// A list that claims a number of elements.
pub fn claimed_list(kind: u8, count: u64, elements: &[u8]) -> Vec<u8> {
    [&[0xf0 | kind][..], &variable(count), elements].concat()
}

pub fn list(kind: u8, elements: &[Vec<u8>]) -> Vec<u8> {
    claimed_list(kind, elements.len() as u64, &elements.concat())
}

/// A struct to which fields are added.
#[derive(Default, Clone)]
pub struct Fields(Vec<u8>);

impl Fields {
    /// Adds a field of this number and type.
    pub fn field(mut self, number: i64, kind: u8, value: &[u8]) -> Fields {
        self.0.push(kind);
        self.0.extend(integer(number));
        self.0.extend(value);
        self
    }

    pub fn i32(self, number: i64, value: i64) -> Fields {
        self.field(number, I32, &integer(value))
    }

    pub fn i64(self, number: i64, value: i64) -> Fields {
        self.field(number, I64, &integer(value))
    }

    pub fn text(self, number: i64, value: &str) -> Fields {
        self.field(number, BINARY, &text(value))
    }

    pub fn list(self, number: i64, kind: u8, elements: &[Vec<u8>]) -> Fields {
        self.field(number, LIST, &list(kind, elements))
    }

    pub fn structure(self, number: i64, fields: Fields) -> Fields {
        let value = fields.end();
        self.field(number, STRUCT, &value)
    }

    /// The whole struct.
    pub fn end(mut self) -> Vec<u8> {
        self.0.push(0);
        self.0
    }
}
