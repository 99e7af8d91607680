//! Checks the footer of a Parquet file before it reaches the decoder. The decoder allocates memory
//! by the counts in the footer, follows its schema by recursion, and copies for every column what
//! the footer has once.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use arrow_schema::Field;
use base64::Engine;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue, RowGroupMetaData, SortingColumn};
use parquet::schema::types::{ColumnDescriptor, Type};

use super::ipc_check::encoded_schema_bytes;
use super::thrift::{CompactReader, Shape, demand};
use super::unfit::Unfit;

/// Most names on the path to a column.
const SCHEMA_DEPTH_MAX: usize = 64;

/// The length of the footer and a magic number, behind the footer.
const TAIL_BYTES: u64 = 8;

/// The text of a footer is in memory three times: as read, decoded, and in the schema.
const FOOTER_COPIES: u64 = 3;

/// Memory that the decoder takes for a node of the schema, without the names on its path. The first
/// number stands for pointers and their reference counts.
const NODE_BYTES: u64 =
    (128 + size_of::<Type>() + size_of::<ColumnDescriptor>() + size_of::<Field>() + 2 * size_of::<String>()) as u64;

/// The key of the Arrow schema, which Arrow's writers add to the Parquet schema.
const ARROW_SCHEMA_KEY: &[u8] = b"ARROW:schema";

const EMPTY: Shape = Shape::Struct(&[]);
const TIME: Shape = Shape::Struct(&[(1, Shape::Bool), (2, Shape::Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]))]);
const LOGICAL_TYPE: Shape = Shape::Struct(&[
    (1, EMPTY),
    (2, EMPTY),
    (3, EMPTY),
    (4, EMPTY),
    (5, Shape::Struct(&[(1, Shape::I32), (2, Shape::I32)])),
    (6, EMPTY),
    (7, TIME),
    (8, TIME),
    (10, Shape::Struct(&[(1, Shape::Byte), (2, Shape::Bool)])),
    (11, EMPTY),
    (12, EMPTY),
    (13, EMPTY),
    (14, EMPTY),
    (15, EMPTY),
    (16, Shape::Struct(&[(1, Shape::Byte)])),
    (17, Shape::Struct(&[(1, Shape::Binary)])),
    (18, Shape::Struct(&[(1, Shape::Binary), (2, Shape::I32)])),
]);

const COUNTS: Shape = Shape::List(&Shape::I64, size_of::<i64>());
const STATISTICS: Shape = Shape::Struct(&[
    (1, Shape::Binary),
    (2, Shape::Binary),
    (3, Shape::I64),
    (4, Shape::I64),
    (5, Shape::Binary),
    (6, Shape::Binary),
    (7, Shape::Bool),
    (8, Shape::Bool),
]);
const BOUNDING_BOX: Shape = Shape::Struct(&[
    (1, Shape::Double),
    (2, Shape::Double),
    (3, Shape::Double),
    (4, Shape::Double),
    (5, Shape::Double),
    (6, Shape::Double),
    (7, Shape::Double),
    (8, Shape::Double),
]);
const COLUMN: Shape = Shape::Struct(&[
    (1, Shape::I32),
    (2, Shape::List(&Shape::I32, 0)),
    (4, Shape::I32),
    (5, Shape::I64),
    (6, Shape::I64),
    (7, Shape::I64),
    (9, Shape::I64),
    (10, Shape::I64),
    (11, Shape::I64),
    (12, STATISTICS),
    (13, Shape::List(&Shape::Struct(&[(1, Shape::I32), (2, Shape::I32), (3, Shape::I32)]), 0)),
    (14, Shape::I64),
    (15, Shape::I32),
    (16, Shape::Struct(&[(1, Shape::I64), (2, COUNTS), (3, COUNTS)])),
    (17, Shape::Struct(&[(1, BOUNDING_BOX), (2, Shape::List(&Shape::I32, size_of::<i32>()))])),
]);
const COLUMN_CHUNK: Shape = Shape::Struct(&[
    (1, Shape::Binary),
    (2, Shape::I64),
    (3, COLUMN),
    (4, Shape::I64),
    (5, Shape::I32),
    (6, Shape::I64),
    (7, Shape::I32),
]);
const SORTING_COLUMN: Shape = Shape::Struct(&[(1, Shape::I32), (2, Shape::Bool), (3, Shape::Bool)]);
const ROW_GROUP: Shape = Shape::Struct(&[
    (1, Shape::List(&COLUMN_CHUNK, size_of::<ColumnChunkMetaData>())),
    (2, Shape::I64),
    (3, Shape::I64),
    (4, Shape::List(&SORTING_COLUMN, size_of::<SortingColumn>())),
    (5, Shape::I64),
    (7, Shape::I16),
]);
const ROW_GROUPS: Shape = Shape::List(&ROW_GROUP, size_of::<RowGroupMetaData>());
const COLUMN_ORDERS: Shape = Shape::List(&Shape::Struct(&[(1, EMPTY)]), size_of::<u64>());

/// Checks the footer of a file of this length, if it is not encrypted.
pub(crate) fn check_footer(file: &File, file_length: u64, bytes_max: u64) -> Result<(), Unfit> {
    let mut input = BufReader::new(file);
    let tail_start = file_length.checked_sub(TAIL_BYTES).ok_or("the file is too short")?;
    let mut tail = [0; TAIL_BYTES as usize];
    input
        .seek(SeekFrom::Start(tail_start))
        .and_then(|_| input.read_exact(&mut tail))
        .map_err(|error| error.to_string())?;
    let [length @ .., _, _, _, _] = tail;
    if &tail[4..] != b"PAR1" {
        // The footer is encrypted, or this is no Parquet file: the decoder reports it.
        return Ok(());
    }
    let length = u64::from(u32::from_le_bytes(length));
    let start = tail_start.checked_sub(length);
    let start = start.ok_or_else(|| format!("the footer claims {length} bytes, and the file has {file_length}"))?;
    input.seek(SeekFrom::Start(start)).map_err(|error| error.to_string())?;
    let mut footer = FooterReader {
        reader: CompactReader::new(input, length),
        bytes: length.saturating_mul(FOOTER_COPIES),
        bytes_max,
    };
    footer.check_bytes()?;
    let outcome = footer.file_metadata();
    outcome.map_err(|unfit| match unfit {
        Unfit::Damaged(reason) => format!("the footer, at its byte {}: {reason}", footer.reader.position()).into(),
        other => other,
    })
}

struct FooterReader<R> {
    reader: CompactReader<R>,
    /// The memory that its schema and texts take.
    bytes: u64,
    bytes_max: u64,
}

impl<R: BufRead> FooterReader<R> {
    fn check_bytes(&self) -> Result<(), Unfit> {
        let bytes = self.bytes.saturating_add(self.reader.decoded_bytes);
        if bytes > self.bytes_max {
            return Err(Unfit::TooLarge { what: "the footer", bytes, bytes_max: self.bytes_max });
        }
        Ok(())
    }

    fn take(&mut self, bytes: u64) -> Result<(), Unfit> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.check_bytes()
    }

    fn file_metadata(&mut self) -> Result<(), Unfit> {
        let mut field = 0;
        while let Some(kind) = self.reader.next_field(&mut field)? {
            match field {
                1 => self.reader.pass_known(&Shape::I32, kind)?,
                2 => self.schema(kind)?,
                3 => self.reader.pass_known(&Shape::I64, kind)?,
                4 => self.reader.pass_known(&ROW_GROUPS, kind)?,
                5 => self.key_values(kind)?,
                6 => self.reader.pass_known(&Shape::Binary, kind)?,
                7 => self.reader.pass_known(&COLUMN_ORDERS, kind)?,
                _ => self.reader.pass_unknown(kind)?,
            }
            self.check_bytes()?;
        }
        Ok(())
    }

    /// Checks the tree of the schema, a list in which each group precedes its children.
    fn schema(&mut self, kind: u8) -> Result<(), Unfit> {
        let (count, kind) = self.struct_list(kind)?;
        let mut groups: Vec<OpenGroup> = Vec::new();
        // Children that groups claim and that have not been read yet.
        let mut claimed = 1;
        for left in (0..count).rev() {
            if claimed == 0 {
                return Err("an element of the schema belongs to no group".into());
            }
            let element = self.schema_element(kind)?;
            while groups.pop_if(|group| group.children_left == 0).is_some() {}
            let path_bytes = groups.last().map_or(0, |group| group.path_bytes) + element.name_bytes;
            // A column stores the names on its path.
            let depth = groups.len() as u64;
            self.take(NODE_BYTES.saturating_add(path_bytes).saturating_add(depth * size_of::<String>() as u64))?;
            if let Some(group) = groups.last_mut() {
                group.children_left -= 1;
            }
            claimed = claimed - 1 + element.children;
            if claimed > left {
                return Err(format!("groups of the schema claim {claimed} elements, and {left} are left").into());
            }
            if element.children > 0 {
                if groups.len() == SCHEMA_DEPTH_MAX {
                    return Err(format!("the schema is nested deeper than {SCHEMA_DEPTH_MAX} levels").into());
                }
                groups.push(OpenGroup { children_left: element.children, path_bytes });
            }
        }
        Ok(())
    }

    /// The number of structs in a list, and the type that is written for them.
    fn struct_list(&mut self, kind: u8) -> Result<(u64, u8), String> {
        demand(&Shape::List(&EMPTY, 0), kind)?;
        self.reader.list_start()
    }

    fn schema_element(&mut self, kind: u8) -> Result<SchemaElement, String> {
        demand(&EMPTY, kind)?;
        let (mut element, mut field) = (SchemaElement::default(), 0);
        while let Some(kind) = self.reader.next_field(&mut field)? {
            match field {
                1..=3 | 6..=9 => self.reader.pass_known(&Shape::I32, kind)?,
                4 => element.name_bytes = self.reader.pass_binary(kind)?,
                5 => {
                    let children = self.reader.integer(kind)?;
                    element.children = u64::try_from(children)
                        .map_err(|_| format!("a group of the schema claims {children} elements"))?;
                }
                10 => self.reader.pass_known(&LOGICAL_TYPE, kind)?,
                _ => self.reader.pass_unknown(kind)?,
            }
        }
        Ok(element)
    }

    fn key_values(&mut self, kind: u8) -> Result<(), Unfit> {
        let (count, kind) = self.struct_list(kind)?;
        self.take(count.saturating_mul(size_of::<KeyValue>() as u64))?;
        for _ in 0..count {
            demand(&EMPTY, kind)?;
            let (mut key, mut value, mut field) = (Vec::new(), Vec::new(), 0);
            while let Some(kind) = self.reader.next_field(&mut field)? {
                match field {
                    1 => key = self.reader.binary(kind)?,
                    2 => value = self.reader.binary(kind)?,
                    _ => self.reader.pass_unknown(kind)?,
                }
            }
            if key == ARROW_SCHEMA_KEY {
                self.arrow_schema(&value)?;
            }
        }
        Ok(())
    }

    fn arrow_schema(&mut self, text: &[u8]) -> Result<(), Unfit> {
        // Invalid text is for the decoder to report.
        let Ok(encoded) = base64::engine::general_purpose::STANDARD.decode(text) else { return Ok(()) };
        self.take(encoded_schema_bytes(&encoded))
    }
}

#[derive(Default)]
struct SchemaElement {
    name_bytes: u64,
    children: u64,
}

/// A group of the schema with children that have not been read yet.
struct OpenGroup {
    children_left: u64,
    /// Bytes of the names on the path to the group, including its own.
    path_bytes: u64,
}
