//! UUIDs (RFC 9562): 16 bytes, as text and as columns of Arrow.
//!
//! Arrow has no such type. Its canonical extension type `arrow.uuid` marks a field of 16 bytes
//! each.

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{Array, FixedSizeBinaryArray};
use arrow_schema::{DataType, Field};

/// The bytes of a UUID, first digits first.
pub type UuidBytes = [u8; 16];

/// The Arrow type of UUID columns.
pub const UUID_STORAGE: DataType = DataType::FixedSizeBinary(16);

const EXTENSION_NAME: &str = "ARROW:extension:name";
const UUID_EXTENSION: &str = "arrow.uuid";

/// Reads a UUID: 32 hexadecimal digits in upper or lower case, with or without hyphens, braces or
/// `urn:uuid:`.
///
/// # Errors
/// When the text is none; the message tells the right form.
pub fn parse_uuid(text: &str) -> Result<UuidBytes, &'static str> {
    match uuid::Uuid::try_parse(text) {
        Ok(uuid) => Ok(uuid.into_bytes()),
        Err(_) => Err("write 32 hexadecimal digits, with or without hyphens"),
    }
}

/// The text of a UUID: lower-case digits with hyphens.
pub fn format_uuid(bytes: UuidBytes) -> String {
    uuid::Uuid::from_bytes(bytes).hyphenated().to_string()
}

/// Whether a column is marked as UUIDs and stored as such, in a dictionary or not.
pub fn is_uuid(field: &Field) -> bool {
    field.metadata().get(EXTENSION_NAME).is_some_and(|name| name == UUID_EXTENSION) && stores_uuids(field.data_type())
}

/// Whether a column of this type could hold UUIDs.
pub fn stores_uuids(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => stores_uuids(values),
        DataType::RunEndEncoded(_, values) => stores_uuids(values.data_type()),
        other => *other == UUID_STORAGE,
    }
}

/// The field with the mark of UUID columns.
#[must_use]
pub fn marked_uuid(mut field: Field) -> Field {
    field.metadata_mut().insert(EXTENSION_NAME.to_owned(), UUID_EXTENSION.to_owned());
    field
}

/// The UUID in a row of a column of [`UUID_STORAGE`]; `None` for null.
pub fn uuid_at(array: &FixedSizeBinaryArray, row: usize) -> Option<UuidBytes> {
    if array.is_valid(row) { array.value(row).first_chunk().copied() } else { None }
}

/// An empty column of UUIDs; [`append_uuid`] fills it.
pub fn uuid_builder() -> FixedSizeBinaryBuilder {
    FixedSizeBinaryBuilder::with_capacity(0, 16)
}

/// Appends a UUID to a column that [`uuid_builder`] began.
pub fn append_uuid(builder: &mut FixedSizeBinaryBuilder, uuid: UuidBytes) {
    let outcome = builder.append_value(uuid);
    debug_assert!(outcome.is_ok(), "nothing but another length is refused");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_uuid_are_one() {
        let text = "550e8400-e29b-41d4-a716-446655440000";
        let bytes = parse_uuid(text).expect("a UUID");
        assert_eq!((bytes[0], bytes[15], format_uuid(bytes).as_str()), (0x55, 0, text));
        let spellings = ["550E8400-E29B-41D4-A716-446655440000", "550e8400e29b41d4a716446655440000"];
        for spelling in
            spellings.into_iter().map(str::to_owned).chain([format!("{{{text}}}"), format!("urn:uuid:{text}")])
        {
            assert_eq!(parse_uuid(&spelling), Ok(bytes), "{spelling}");
        }
        for text in ["", "550e8400", "550e8400-e29b-41d4-a716-44665544000g", " 550e8400e29b41d4a716446655440000"] {
            assert!(parse_uuid(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_marked_columns_of_16_bytes_are_uuids() {
        let field = |data_type| Field::new("id", data_type, true);
        assert!(is_uuid(&marked_uuid(field(UUID_STORAGE))));
        assert!(is_uuid(&marked_uuid(field(DataType::Dictionary(DataType::Int32.into(), UUID_STORAGE.into())))));
        assert!(!is_uuid(&field(UUID_STORAGE)));
        assert!(
            !is_uuid(&marked_uuid(field(DataType::Binary)))
                && !is_uuid(&marked_uuid(field(DataType::FixedSizeBinary(4))))
        );
    }
}
