//! Primary keys and their memcomparable form: comparing the encoded bytes compares the keys.
//!
//! A key is one column, so its bytes need no terminator. Integers are eight bytes, big-endian, with
//! the sign bit of signed ones flipped. Text, binary keys and UUIDs are their own bytes. The
//! encoding of one type is injective and preserves order.

use std::fmt;
use std::ops::Deref;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use terrane_literal::{UuidBytes, format_uuid, json_integer, parse_uuid};

/// Maximal length of an encoded key in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// Maximal length in bytes of an encoded key that an [`EncodedKey`] holds without an allocation.
pub const KEY_BYTES_INLINE: usize = 64;

const SIGN: u64 = 1 << 63;

/// Type of a dataset's primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyType {
    /// Signed 64-bit integers.
    Int64,
    /// Unsigned 64-bit integers.
    UInt64,
    /// Text, ordered by its UTF-8 bytes.
    Utf8,
    /// Bytes.
    Binary,
    /// UUIDs, ordered by their bytes.
    Uuid,
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Int64 => "int64",
            Self::UInt64 => "uint64",
            Self::Utf8 => "utf8",
            Self::Binary => "binary",
            Self::Uuid => "uuid",
        })
    }
}

/// A primary key. Keys of one type are ordered like their encoded bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// Text.
    Utf8(String),
    /// Bytes.
    Binary(Vec<u8>),
    /// The 16 bytes of a UUID.
    Uuid(UuidBytes),
}

/// Why something is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key is too long.
    #[error("a key has at most {KEY_BYTES_MAX} bytes, this one has {bytes}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The key's type differs from that of the dataset's keys.
    #[error("the keys are {wanted}, this one is {found}")]
    OtherType {
        /// Type of the dataset's keys.
        wanted: KeyType,
        /// Type that was given.
        found: String,
    },
    /// A text is not a key of the expected type.
    #[error("{text:?} is not a key of type {wanted}{}", advice(*wanted))]
    Text {
        /// The text.
        text: String,
        /// Type of the dataset's keys.
        wanted: KeyType,
    },
    /// Encoded bytes are not a key of the expected type.
    #[error("{bytes} bytes are not an encoded {wanted} key")]
    Damaged {
        /// Number of bytes.
        bytes: usize,
        /// Type of the dataset's keys.
        wanted: KeyType,
    },
}

/// The format of keys of this type, if the type's name does not suggest it.
fn advice(wanted: KeyType) -> &'static str {
    match wanted {
        KeyType::Uuid => "; write 32 hexadecimal digits, with or without hyphens",
        _ => "",
    }
}

/// Encodes a signed integer key.
pub fn encode_int(key: i64) -> [u8; 8] {
    (key as u64 ^ SIGN).to_be_bytes()
}

/// Encodes an unsigned integer key.
pub fn encode_uint(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

/// Refuses an encoded key that is too long.
pub fn check_length(encoded: &[u8]) -> Result<(), KeyError> {
    if encoded.len() > KEY_BYTES_MAX { Err(KeyError::TooLong { bytes: encoded.len() }) } else { Ok(()) }
}

impl Key {
    /// The key's type.
    pub fn key_type(&self) -> KeyType {
        match self {
            Self::Int(_) => KeyType::Int64,
            Self::UInt(_) => KeyType::UInt64,
            Self::Utf8(_) => KeyType::Utf8,
            Self::Binary(_) => KeyType::Binary,
            Self::Uuid(_) => KeyType::Uuid,
        }
    }

    /// Appends the memcomparable form to `out`. Refuses a key that is too long; `out` is unchanged
    /// then.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), KeyError> {
        match self {
            Self::Int(key) => out.extend_from_slice(&encode_int(*key)),
            Self::UInt(key) => out.extend_from_slice(&encode_uint(*key)),
            Self::Utf8(key) => {
                check_length(key.as_bytes())?;
                out.extend_from_slice(key.as_bytes());
            }
            Self::Binary(key) => {
                check_length(key)?;
                out.extend_from_slice(key);
            }
            Self::Uuid(key) => out.extend_from_slice(key),
        }
        Ok(())
    }

    /// The memcomparable form in a new buffer.
    pub fn to_encoded(&self) -> Result<EncodedKey, KeyError> {
        match self {
            Self::Int(key) => EncodedKey::new(&encode_int(*key)),
            Self::UInt(key) => EncodedKey::new(&encode_uint(*key)),
            Self::Utf8(key) => EncodedKey::new(key.as_bytes()),
            Self::Binary(key) => EncodedKey::new(key),
            Self::Uuid(key) => EncodedKey::new(key),
        }
    }

    /// Reads a key back from its memcomparable form.
    pub fn decode(key_type: KeyType, encoded: &[u8]) -> Result<Self, KeyError> {
        let damaged = || KeyError::Damaged { bytes: encoded.len(), wanted: key_type };
        check_length(encoded)?;
        let eight = || <[u8; 8]>::try_from(encoded).map(u64::from_be_bytes).map_err(|_| damaged());
        match key_type {
            KeyType::Int64 => Ok(Self::Int((eight()? ^ SIGN) as i64)),
            KeyType::UInt64 => Ok(Self::UInt(eight()?)),
            KeyType::Utf8 => std::str::from_utf8(encoded).map(|key| Self::Utf8(key.to_owned())).map_err(|_| damaged()),
            KeyType::Binary => Ok(Self::Binary(encoded.to_vec())),
            KeyType::Uuid => encoded.try_into().map(Self::Uuid).map_err(|_| damaged()),
        }
    }

    /// Parses a key from text: decimal numbers, text unchanged, binary keys in padded base64, UUIDs
    /// in hexadecimal digits with or without hyphens.
    pub fn parse(key_type: KeyType, text: &str) -> Result<Self, KeyError> {
        let refuse = || KeyError::Text { text: text.chars().take(KEY_BYTES_INLINE).collect(), wanted: key_type };
        let key = match key_type {
            KeyType::Int64 => Self::Int(text.parse().map_err(|_| refuse())?),
            KeyType::UInt64 => Self::UInt(text.parse().map_err(|_| refuse())?),
            KeyType::Utf8 => Self::Utf8(text.to_owned()),
            KeyType::Binary => Self::Binary(BASE64.decode(text).map_err(|_| refuse())?),
            KeyType::Uuid => Self::Uuid(parse_uuid(text).map_err(|_| refuse())?),
        };
        key.check_length()?;
        Ok(key)
    }

    /// Reads a key from a JSON scalar; the inverse of [`Key::to_json`].
    pub fn from_json(key_type: KeyType, json: &serde_json::Value) -> Result<Self, KeyError> {
        use serde_json::Value as Json;
        let refuse = || KeyError::OtherType { wanted: key_type, found: describe_json(json) };
        let key = match (key_type, json) {
            (KeyType::Int64, Json::Number(number)) => Self::Int(json_integer(number).ok_or_else(refuse)?),
            (KeyType::UInt64, Json::Number(number)) => {
                let integer = || u64::try_from(json_integer(number)?).ok();
                Self::UInt(number.as_u64().or_else(integer).ok_or_else(refuse)?)
            }
            (KeyType::Utf8 | KeyType::Binary | KeyType::Uuid, Json::String(text)) => {
                return Self::parse(key_type, text);
            }
            _ => return Err(refuse()),
        };
        Ok(key)
    }

    /// The key as a JSON scalar: integers as numbers, text and UUIDs as strings, bytes in base64.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Int(key) => (*key).into(),
            Self::UInt(key) => (*key).into(),
            Self::Utf8(key) => key.as_str().into(),
            Self::Binary(key) => BASE64.encode(key).into(),
            Self::Uuid(key) => format_uuid(*key).into(),
        }
    }

    /// Refuses a key that is too long.
    pub fn check_length(&self) -> Result<(), KeyError> {
        match self {
            Self::Int(_) | Self::UInt(_) | Self::Uuid(_) => Ok(()),
            Self::Utf8(key) => check_length(key.as_bytes()),
            Self::Binary(key) => check_length(key),
        }
    }
}

fn describe_json(json: &serde_json::Value) -> String {
    use serde_json::Value as Json;
    match json {
        Json::Null => "null".to_owned(),
        Json::Bool(_) => "a boolean".to_owned(),
        Json::Number(number) => format!("the number {number}"),
        Json::String(_) => "a string".to_owned(),
        Json::Array(_) => "an array".to_owned(),
        Json::Object(_) => "an object".to_owned(),
    }
}

/// Writes the key as a JSON scalar.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_json().fmt(f)
    }
}

impl From<i64> for Key {
    fn from(key: i64) -> Self {
        Self::Int(key)
    }
}

impl From<i32> for Key {
    fn from(key: i32) -> Self {
        Self::Int(key.into())
    }
}

impl From<u64> for Key {
    fn from(key: u64) -> Self {
        Self::UInt(key)
    }
}

impl From<&str> for Key {
    fn from(key: &str) -> Self {
        Self::Utf8(key.to_owned())
    }
}

impl From<String> for Key {
    fn from(key: String) -> Self {
        Self::Utf8(key)
    }
}

/// An encoded key. Short keys are stored in place, longer ones on the heap. Equality, order and
/// hash are those of the bytes.
#[derive(Clone)]
pub struct EncodedKey(Storage);

#[derive(Clone)]
enum Storage {
    Inline { length: u8, bytes: [u8; KEY_BYTES_INLINE] },
    Heap(Box<[u8]>),
}

impl EncodedKey {
    /// Copies encoded bytes; refuses more than [`KEY_BYTES_MAX`].
    pub fn new(encoded: &[u8]) -> Result<Self, KeyError> {
        check_length(encoded)?;
        if encoded.len() > KEY_BYTES_INLINE {
            return Ok(Self(Storage::Heap(encoded.into())));
        }
        let mut bytes = [0; KEY_BYTES_INLINE];
        bytes[..encoded.len()].copy_from_slice(encoded);
        Ok(Self(Storage::Inline { length: encoded.len() as u8, bytes }))
    }

    /// The encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Storage::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Storage::Heap(bytes) => bytes,
        }
    }

    /// Bytes that the key holds on the heap.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Storage::Inline { .. } => 0,
            Storage::Heap(bytes) => bytes.len(),
        }
    }
}

impl Deref for EncodedKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for EncodedKey {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl std::borrow::Borrow<[u8]> for EncodedKey {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for EncodedKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for EncodedKey {}

impl PartialOrd for EncodedKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EncodedKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl std::hash::Hash for EncodedKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for EncodedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncodedKey(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}
