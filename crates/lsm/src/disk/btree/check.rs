//! Verifies a whole B-tree component.

use std::sync::Arc;

use super::pages::{Inner, Leaf, validate};
use super::{BTreeComponent, to_hex};
use crate::Result;
use crate::disk::bloom;
use crate::disk::page::{PageKind, PagePointer};
use crate::disk::times::{RecordTimes, TimeSpan};
use crate::index::ComponentCheck;

#[derive(Debug, Default)]
struct Walk {
    found: ComponentCheck,
    first_key: Option<Vec<u8>>,
    last: Option<(Vec<u8>, Option<u64>)>,
    /// Whether the parents of leaves have Bloom filters; `None` before the first.
    has_filters: Option<bool>,
    /// Hashes of the keys below the open parent of leaves.
    hashes: Vec<u64>,
    times: Option<TimeSpan>,
}

impl BTreeComponent {
    /// Reads every page from the file. Verifies checksums, structure, order (I1), separators (I2),
    /// Bloom filters, and the description, with the range of times if its values are records.
    /// Takes memory for one page per level.
    pub fn check(&self, times: Option<&Arc<dyn RecordTimes>>) -> Result<ComponentCheck> {
        let meta = self.file().meta();
        let span = meta.statistics.time.zip(times).map(|(time, times)| TimeSpan::over(time.attribute, times.clone()));
        let mut walk = Walk { times: span, ..Walk::default() };
        if let Some(root) = meta.root {
            self.walk(root, meta.height.saturating_sub(1), None, &mut walk)?;
        }
        let found = walk.found;
        let expected = ComponentCheck {
            pages: meta.pages.into(),
            entries: meta.statistics.entries,
            antimatter: meta.statistics.antimatter,
        };
        let fail = |reason: String| Err(self.file().damaged(PagePointer::default(), reason));
        if found != expected {
            return fail(format!("the description says {expected:?}, but the pages hold {found:?}"));
        }
        let range = walk.first_key.zip(walk.last).map(|(first, (last, _))| (to_hex(&first), to_hex(&last)));
        if range != meta.key_range {
            return fail("the description's key range is not that of the entries".into());
        }
        if let Some(times) = walk.times
            && times.finish() != meta.statistics.time
        {
            return fail("the description's range of times is not that of the records".into());
        }
        Ok(found)
    }

    fn walk(&self, pointer: PagePointer, level: u8, first_key: Option<&[u8]>, walk: &mut Walk) -> Result<()> {
        let page = self.file().load(pointer, validate)?;
        walk.found.pages += 1;
        let fail = |reason: &str| Err(self.file().damaged(pointer, reason));
        if page.level() != level {
            return fail("the page is at another level than its parent says");
        }
        if level == 0 {
            let Some(leaf) = Leaf::parse(&page).filter(|_| page.kind() == PageKind::BTreeLeaf) else {
                return fail("a leaf was expected");
            };
            if first_key.is_some_and(|key| *leaf.keys.get(0) != *key) {
                return fail("the leaf does not start with the key that its parent names");
            }
            for entry in (0..leaf.count).map(|index| leaf.get(index)) {
                let ordered = walk.last.as_ref().is_none_or(|(key, begin)| {
                    key.as_slice() < &*entry.key || (*key == *entry.key && *begin > entry.begin)
                });
                if !ordered {
                    return fail("the leaf's keys do not follow those of the leaf before");
                }
                walk.first_key.get_or_insert_with(|| entry.key.to_vec());
                walk.last = Some((entry.key.to_vec(), entry.begin));
                walk.hashes.push(bloom::hash(&entry.key));
                if entry.antimatter {
                    walk.found.antimatter += 1;
                    continue;
                }
                walk.found.entries += 1;
                if let Some(times) = &mut walk.times {
                    times.add(entry.value);
                }
            }
            return Ok(());
        }
        let Some(inner) = Inner::parse(&page).filter(|_| page.kind() == PageKind::BTreeInner) else {
            return fail("an inner page was expected");
        };
        if first_key.is_some_and(|key| *inner.keys.get(0) != *key) {
            return fail("the page does not start with the key that its parent names");
        }
        for (index, child) in inner.children.iter().enumerate() {
            if child.offset >= pointer.offset {
                return fail("a child lies behind its parent");
            }
            self.walk(*child, level - 1, Some(&inner.keys.get(index)), walk)?;
        }
        let has_filter = inner.bloom.length > 0;
        if has_filter && level > 1 {
            return fail("only parents of leaves have a Bloom filter");
        }
        if level == 1 && *walk.has_filters.get_or_insert(has_filter) != has_filter {
            return fail("the parents of leaves have Bloom filters either all or none");
        }
        if has_filter {
            let filter = self.file().load(inner.bloom, validate)?;
            walk.found.pages += 1;
            let words: &[u32] = bytemuck::try_cast_slice(filter.payload()).unwrap_or(&[]);
            if filter.kind() != PageKind::Bloom || !walk.hashes.iter().all(|hash| bloom::may_contain(words, *hash)) {
                return fail("the Bloom filter denies a key below this page");
            }
        }
        walk.hashes.clear();
        Ok(())
    }
}
