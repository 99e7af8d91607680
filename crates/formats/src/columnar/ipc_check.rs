//! Checks the sizes written in an Arrow IPC file before it reaches the decoder. The decoder
//! allocates memory by those sizes, decodes a whole batch at once, and keeps dictionaries.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

use arrow_ipc::{
    CompressionType, Field, KeyValue, Message, MessageHeader, RecordBatch, Schema, root_as_footer, root_as_message,
};
use lz4_flex::frame::FrameDecoder;

use super::unfit::{LZ4_EXPANSION_MAX, Unfit, check_claim};

/// Most rows that one batch may claim.
const BATCH_ROWS_MAX: i64 = 1 << 31;

const CONTINUATION: [u8; 4] = [0xff; 4];

/// Memory of a decoded column, without its names and metadata. The first number stands for pointers
/// and their reference counts.
const FIELD_BYTES: u64 = (64 + size_of::<arrow_schema::Field>()) as u64;

/// Memory that a file's batches take.
struct Sizes {
    /// Bytes of each dictionary, with everything that was added to it.
    dictionaries: HashMap<i64, u64>,
    bytes_max: u64,
}

impl Sizes {
    fn new(bytes_max: u64) -> Self {
        Self { dictionaries: HashMap::new(), bytes_max }
    }

    /// Refuses a batch that does not fit beside the dictionaries.
    fn check(&self, batch_bytes: u64) -> Result<(), Unfit> {
        let bytes = self.dictionaries.values().fold(batch_bytes, |sum, bytes| sum.saturating_add(*bytes));
        if bytes > self.bytes_max {
            return Err(Unfit::TooLarge {
                what: "a record batch with its dictionaries",
                bytes,
                bytes_max: self.bytes_max,
            });
        }
        Ok(())
    }
}

/// Checks a file by its footer; returns the number of rows.
pub(crate) fn check_file<R: Read + Seek>(file: &mut R, bytes_max: u64) -> Result<u64, Unfit> {
    let length = file.seek(SeekFrom::End(0)).map_err(text)?;
    // The file begins and ends with the magic; the length of the footer precedes the last one.
    let tail_start = length.checked_sub(10).filter(|&start| start >= 8);
    let tail_start = tail_start.ok_or("the file is too short")?;
    file.seek(SeekFrom::Start(tail_start)).map_err(text)?;
    let mut tail = [0; 10];
    file.read_exact(&mut tail).map_err(text)?;
    if &tail[4..] != b"ARROW1" {
        return Err("the end mark is missing: the file is cut short".into());
    }
    let footer_length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    let footer_start = tail_start.checked_sub(footer_length).ok_or("the footer is longer than the file")?;
    file.seek(SeekFrom::Start(footer_start)).map_err(text)?;
    let footer = read_bytes(file, footer_length)?;
    let footer = root_as_footer(&footer).map_err(|error| format!("the footer is not valid: {error}"))?;
    check_schema(footer.schema(), bytes_max)?;
    let dictionaries = footer.dictionaries().into_iter().flatten();
    let batches = footer.recordBatches().into_iter().flatten();
    let (mut row_count, mut sizes) = (0, Sizes::new(bytes_max));
    for block in dictionaries.chain(batches) {
        let start = u64::try_from(block.offset()).map_err(text)?;
        let metadata_length = u64::try_from(block.metaDataLength()).map_err(text)?;
        let body_length = u64::try_from(block.bodyLength()).map_err(text)?;
        let end = start.checked_add(metadata_length).and_then(|end| end.checked_add(body_length));
        if end.is_none_or(|end| end > footer_start) {
            return Err("a batch lies outside of the file".into());
        }
        file.seek(SeekFrom::Start(start)).map_err(text)?;
        let frame = read_frame(file, length)?.ok_or("a batch has no content")?;
        row_count += check_message(file, &frame, start + metadata_length, length, &mut sizes)?;
    }
    Ok(row_count)
}

/// Checks a stream from start to end; returns the number of rows.
pub(crate) fn check_stream<R: Read + Seek>(file: &mut R, bytes_max: u64) -> Result<u64, Unfit> {
    let length = file.seek(SeekFrom::End(0)).map_err(text)?;
    file.seek(SeekFrom::Start(0)).map_err(text)?;
    let (mut row_count, mut sizes) = (0, Sizes::new(bytes_max));
    while let Some(frame) = read_frame(file, length)? {
        let body_start = file.stream_position().map_err(text)?;
        let body_length = message(&frame)?.bodyLength();
        row_count += check_message(file, &frame, body_start, length, &mut sizes)?;
        let body_length = u64::try_from(body_length).map_err(text)?;
        file.seek(SeekFrom::Start(body_start + body_length)).map_err(text)?;
    }
    Ok(row_count)
}

fn check_schema(schema: Option<Schema<'_>>, bytes_max: u64) -> Result<(), Unfit> {
    let bytes = schema.map_or(0, |schema| schema_bytes(&schema));
    if bytes > bytes_max {
        return Err(Unfit::TooLarge { what: "the schema", bytes, bytes_max });
    }
    Ok(())
}

/// Memory of a decoded schema, as Parquet files store it beside their own. The decoder reports
/// invalid ones.
pub(crate) fn encoded_schema_bytes(bytes: &[u8]) -> u64 {
    let bytes = match bytes {
        [0xff, 0xff, 0xff, 0xff, _, _, _, _, rest @ ..] => rest,
        other => other,
    };
    let message = root_as_message(bytes).ok().and_then(|message| message.header_as_schema());
    message.map_or(0, |schema| schema_bytes(&schema))
}

/// Memory of a decoded schema. Its parts can be written once and referred to from several places.
/// The verifier limits its depth and its number of parts.
fn schema_bytes(schema: &Schema<'_>) -> u64 {
    let metadata = schema.custom_metadata().into_iter().flatten().map(|pair| pair_bytes(&pair));
    let fields = schema.fields().into_iter().flatten().map(|field| field_bytes(&field));
    metadata.chain(fields).fold(0, u64::saturating_add)
}

fn field_bytes(field: &Field<'_>) -> u64 {
    let zone = field.type_as_timestamp().and_then(|timestamp| timestamp.timezone());
    let texts = [field.name(), zone].into_iter().flatten().map(|text| text.len() as u64);
    let metadata = field.custom_metadata().into_iter().flatten().map(|pair| pair_bytes(&pair));
    let children = field.children().into_iter().flatten().map(|child| field_bytes(&child));
    texts.chain(metadata).chain(children).fold(FIELD_BYTES, u64::saturating_add)
}

fn pair_bytes(pair: &KeyValue<'_>) -> u64 {
    let texts = [pair.key(), pair.value()].into_iter().flatten();
    texts.map(|text| (size_of::<String>() + text.len()) as u64).sum()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn message(frame: &[u8]) -> Result<Message<'_>, String> {
    root_as_message(frame).map_err(|error| format!("a message is not valid: {error}"))
}

fn read_bytes<R: Read>(file: &mut R, length: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(text)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err("the file is cut short".to_string()) }
}

/// The metadata of the message that starts here; `None` at the end of a stream.
fn read_frame<R: Read>(file: &mut R, file_length: u64) -> Result<Option<Vec<u8>>, String> {
    let mut word = [0; 4];
    let first = file.read(&mut word).map_err(text)?;
    if first == 0 {
        return Ok(None);
    }
    file.read_exact(&mut word[first..]).map_err(|_| "the file is cut short".to_string())?;
    if word == CONTINUATION {
        file.read_exact(&mut word).map_err(|_| "the file is cut short".to_string())?;
    }
    match u64::from(u32::from_le_bytes(word)) {
        0 => Ok(None),
        length if length > file_length => Err("a message is longer than the file".to_string()),
        length => read_bytes(file, length).map(Some),
    }
}

/// Checks the sizes in a message; returns its number of rows.
fn check_message<R: Read + Seek>(
    file: &mut R,
    frame: &[u8],
    body_start: u64,
    file_length: u64,
    sizes: &mut Sizes,
) -> Result<u64, Unfit> {
    let message = message(frame)?;
    let body_length = u64::try_from(message.bodyLength()).map_err(text)?;
    if body_start.checked_add(body_length).is_none_or(|end| end > file_length) {
        return Err("a batch lies outside of the file: the file is cut short".into());
    }
    match message.header_type() {
        MessageHeader::RecordBatch => {
            let batch = message.header_as_record_batch().ok_or("a batch has no header")?;
            let (rows, bytes) = check_batch(file, &batch, body_start, body_length, sizes.bytes_max)?;
            sizes.check(bytes)?;
            Ok(rows)
        }
        MessageHeader::DictionaryBatch => {
            let dictionary = message.header_as_dictionary_batch().ok_or("a dictionary has no header")?;
            let batch = dictionary.data().ok_or("a dictionary has no values")?;
            let (_, bytes) = check_batch(file, &batch, body_start, body_length, sizes.bytes_max)?;
            let before = sizes.dictionaries.entry(dictionary.id()).or_default();
            *before = if dictionary.isDelta() { before.saturating_add(bytes) } else { bytes.max(*before) };
            sizes.check(0)?;
            Ok(0)
        }
        MessageHeader::Schema => check_schema(message.header_as_schema(), sizes.bytes_max).map(|()| 0),
        _ => Ok(0),
    }
}

/// Checks the buffers of a batch; returns its number of rows, its encoded bytes and its decoded
/// bytes.
fn check_batch<R: Read + Seek>(
    file: &mut R,
    batch: &RecordBatch<'_>,
    body_start: u64,
    body_length: u64,
    bytes_max: u64,
) -> Result<(u64, u64), Unfit> {
    if !(0..=BATCH_ROWS_MAX).contains(&batch.length()) {
        return Err(format!("a batch claims to have {} rows", batch.length()).into());
    }
    let is_lz4 = batch.compression().is_some_and(|compression| compression.codec() == CompressionType::LZ4_FRAME);
    let mut bytes = body_length;
    for buffer in batch.buffers().into_iter().flatten() {
        let offset = u64::try_from(buffer.offset()).map_err(text)?;
        let length = u64::try_from(buffer.length()).map_err(text)?;
        if offset.checked_add(length).is_none_or(|end| end > body_length) {
            return Err("a buffer lies outside of its batch".into());
        }
        // A compressed buffer starts with its decompressed length, or -1 if it is not compressed.
        if batch.compression().is_some() && length >= 8 {
            file.seek(SeekFrom::Start(body_start + offset)).map_err(text)?;
            let mut word = [0; 8];
            file.read_exact(&mut word).map_err(text)?;
            let Ok(claimed) = u64::try_from(i64::from_le_bytes(word)) else { continue };
            bytes = bytes.saturating_add(claimed);
            // The LZ4 decoder does not stop at the claimed length.
            if is_lz4 && bytes <= bytes_max && (length - 8).saturating_mul(LZ4_EXPANSION_MAX) > bytes_max {
                check_claim(FrameDecoder::new(file.take(length - 8)), "a buffer", claimed)?;
            }
        }
    }
    Ok((u64::try_from(batch.length()).map_err(text)?, bytes))
}
