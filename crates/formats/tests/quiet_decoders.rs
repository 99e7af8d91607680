//! Decoders in which a damaged file triggers a failed assertion: an error with the reason, and
//! nothing on standard error. This test has a binary of its own, since it watches the panics of the
//! process.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Float64Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use terrane_formats::{ReadOptions, open};

static PANICS_TOLD: AtomicUsize = AtomicUsize::new(0);

fn stream() -> Vec<u8> {
    let batch = RecordBatch::try_from_iter([
        ("lon", Arc::new(Float64Array::from(vec![Some(1.0), None])) as _),
        ("lat", Arc::new(Float64Array::from(vec![Some(2.0), None])) as _),
        ("name", Arc::new(StringArray::from(vec![Some("a"), None])) as _),
    ]);
    let batch = batch.expect("columns of one length");
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).expect("a writer");
    writer.write(&batch).and_then(|()| writer.finish()).expect("a vector takes everything");
    drop(writer);
    bytes
}

fn read(path: &std::path::Path) -> Result<(), String> {
    let mut source = open(path, &ReadOptions::default()).map_err(|error| error.to_string())?;
    while source.next_batch().map_err(|error| error.to_string())?.is_some() {}
    Ok(())
}

#[test]
fn a_decoder_that_panics_is_an_error_and_says_nothing_itself() {
    panic::set_hook(Box::new(|_| {
        PANICS_TOLD.fetch_add(1, Ordering::SeqCst);
    }));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.arrows");
    let whole = stream();
    let mut reasons = Vec::new();
    for place in 0..whole.len() {
        for mask in [0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[place] ^= mask;
            std::fs::write(&path, &bytes).expect("a file");
            reasons.extend(read(&path).err().filter(|reason| reason.contains("contradicts itself")));
        }
    }
    assert!(reasons.iter().any(|reason| reason.contains("cannot be decoded (")), "{reasons:?}");
    assert_eq!(PANICS_TOLD.load(Ordering::SeqCst), 0);
    assert!(panic::catch_unwind(|| panic!("of another kind")).is_err());
    assert_eq!(PANICS_TOLD.load(Ordering::SeqCst), 1, "other panics are told as before");
}
