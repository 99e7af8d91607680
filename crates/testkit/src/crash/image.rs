//! The state of a disk after a crash.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use terrane_storage::Storage;
use terrane_storage::event::FileId;
use xxhash_rust::xxh3::Xxh3;

use super::Controller;
use super::choice::Choice;
use super::cut::{Cut, NameOrder};
use super::data::SECTOR_LENGTH;
use super::names::{Names, Node};
use super::state::State;
use crate::memory::content::Content;
use crate::memory::{MemoryStorage, Prepared, Recorder, hash_name};

/// The kind of crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Power loss: only what it leaves is there, and all of that is durable.
    PowerLoss,
    /// Kill of the process: everything is there. A later power loss can still lose what was not
    /// synced.
    ProcessKill,
}

/// One state in which a crash may leave the disk.
#[derive(Clone)]
pub struct Image {
    cut: Arc<Cut>,
    crash: Crash,
    choice: Choice,
    name_order: NameOrder,
    names: Arc<Names>,
    /// Files with waiting changes; the others have their durable content.
    changed: BTreeMap<FileId, Arc<Content>>,
}

impl Image {
    pub(super) fn new(cut: Arc<Cut>, crash: Crash, mut choice: Choice, name_order: NameOrder) -> Self {
        cut.normalise(&mut choice, name_order);
        let names = cut.names(&choice);
        let mut changed: BTreeMap<FileId, Arc<Content>> = BTreeMap::new();
        if cut.touched().next().is_some() {
            for id in names.values().filter_map(file_id) {
                if cut.state.files.get(&id).is_some_and(|file| file.is_waiting())
                    && let Some(content) = cut.content(id, &choice)
                {
                    changed.insert(id, content);
                }
            }
        }
        Self { cut, crash, choice, name_order, names, changed }
    }

    /// Number of events before the crash.
    pub fn cut(&self) -> usize {
        self.cut.state.position
    }

    /// The kind of crash.
    pub fn crash(&self) -> Crash {
        self.crash
    }

    /// The kept changes, for [`Controller::image_with`].
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Names of all files, sorted.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter(|(_, node)| file_id(node).is_some()).map(|(name, _)| &**name)
    }

    /// The content of a file; `None` if there is no file of this name.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let content = self.content(file_id(self.names.get(name)?)?)?;
        let mut bytes = vec![0; usize::try_from(content.length()).ok()?];
        content.read(&mut bytes, 0);
        Some(bytes)
    }

    /// Starts the machine (or process) again on this disk, under its own controller, so that
    /// recovery can be cut too. The image does not change, so this can be called again.
    pub fn restart(&self) -> Arc<Controller> {
        let base = match self.crash {
            Crash::PowerLoss => State::durable(self.names.clone(), |id| self.content(id)),
            Crash::ProcessKill => self.cut.state.restarted(),
        };
        Controller::starting_from(base, |log| self.prepared(Some(log), false))
    }

    /// A power loss ends the boot of the machine; a kill does not.
    fn boot(&self) -> u128 {
        match self.crash {
            Crash::PowerLoss => self.cut.boot + 1,
            Crash::ProcessKill => self.cut.boot,
        }
    }

    /// Storage as in [`Image::restart`], for tests that do not cut again.
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.prepared(None, false))
    }

    /// The same, with a record of what is read of it ([`MemoryStorage::reads`]).
    pub fn watched(&self) -> MemoryStorage {
        self.prepared(None, true)
    }

    /// A hash of the names, the contents and the boot that a process on this disk sees. Different
    /// images have the same hash with a chance of one in 2^64.
    pub fn hash_contents(&self) -> u64 {
        let mut hasher = Xxh3::new();
        hasher.update(&self.boot().to_le_bytes());
        for (name, node) in self.names.iter() {
            hash_name(&mut hasher, name);
            if let Some(content) = file_id(node).and_then(|file| self.content(file)) {
                content.hash(&mut hasher);
            }
        }
        hasher.digest()
    }

    pub(super) fn prepared(&self, recorder: Option<Arc<dyn Recorder>>, is_watched: bool) -> MemoryStorage {
        let held = self.names.iter().filter_map(|(name, node)| {
            let held = match node {
                Node::Directory => Prepared::Directory,
                Node::File(id) => Prepared::File(*id, (*self.content(*id)?).clone()),
            };
            Some((name.clone(), held))
        });
        MemoryStorage::prepared(held, self.cut.state.next_file(), self.boot(), recorder, is_watched)
    }

    /// The losses as text, and the choice that replays the image.
    pub fn describe(&self) -> String {
        let cut = self.cut();
        let lost = self.cut.describe_lost(&self.choice);
        let lost = if lost.is_empty() { "nothing".to_owned() } else { lost };
        match self.crash {
            Crash::PowerLoss => format!(
                "power loss after {cut} events, of {} waiting changes lost: {lost} (replay: cut {cut}, choice \"{}\")",
                self.cut.units.len(),
                self.choice
            ),
            Crash::ProcessKill => format!("process kill after {cut} events (replay: cut {cut})"),
        }
    }

    /// Finds a smaller set of losses that still makes `fails` true. It tries to keep smaller and
    /// smaller groups of the losses of this image, first whole changes and then their sectors.
    ///
    /// Returns the image unchanged if `fails` is false for it, or if it loses nothing.
    pub fn shrink(&self, mut fails: impl FnMut(&Image) -> bool) -> Image {
        if !fails(self) {
            return self.clone();
        }
        let units = self.cut.units.iter().map(|unit| self.lost(unit.bits.clone())).collect();
        let image = self.keep_groups(units, &mut fails);
        let bits = image.lost(0..image.choice.len()).into_iter().map(|bit| vec![bit]).collect();
        image.keep_groups(bits, &mut fails)
    }

    fn lost(&self, bits: std::ops::Range<usize>) -> Vec<usize> {
        bits.filter(|&bit| !self.choice.keeps(bit)).collect()
    }

    fn keep_groups(&self, mut groups: Vec<Vec<usize>>, fails: &mut impl FnMut(&Image) -> bool) -> Image {
        groups.retain(|group| !group.is_empty());
        let mut image = self.clone();
        let mut size = groups.len();
        while size > 0 {
            let before = groups.len();
            let mut start = 0;
            while start < groups.len() {
                let end = (start + size).min(groups.len());
                let mut choice = image.choice.clone();
                for &bit in groups[start..end].iter().flatten() {
                    choice.set(bit..bit + 1, true);
                }
                let candidate = Image::new(image.cut.clone(), image.crash, choice, image.name_order);
                if candidate.choice != image.choice && fails(&candidate) {
                    image = candidate;
                    groups.drain(start..end);
                } else {
                    start = end;
                }
            }
            size = match size {
                // After keeping one group, another may be possible.
                1 if groups.len() < before => 1,
                size => size / 2,
            };
        }
        image
    }

    fn content(&self, id: FileId) -> Option<Arc<Content>> {
        match self.changed.get(&id) {
            Some(content) => Some(content.clone()),
            None => Some(self.cut.state.files.get(&id)?.durable.clone()),
        }
    }

    /// A hash for images of the same cut, equal for equal content. It covers everything that can
    /// differ: the names, and of the files that have one the lengths, touched sectors, stored words
    /// and truncations.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        if !self.cut.state.name_changes.is_empty() {
            self.names.hash(&mut hasher);
        }
        let mut sector_bytes = [0; SECTOR_LENGTH as usize];
        for (id, sectors) in self.cut.touched() {
            let Some(content) = self.changed.get(&id) else {
                continue;
            };
            (id, content.length(), self.cut.durable_bytes_left(id, &self.choice)).hash(&mut hasher);
            for sector in sectors.iter().take_while(|&sector| sector * SECTOR_LENGTH < content.length()) {
                content.read(&mut sector_bytes, sector * SECTOR_LENGTH);
                hasher.write(&sector_bytes);
            }
            let mut word = [0; size_of::<u64>()];
            for offset in self.cut.stored_words(id) {
                content.read(&mut word, offset);
                hasher.write(&word);
            }
        }
        hasher.finish()
    }
}

fn file_id(node: &Node) -> Option<FileId> {
    match node {
        Node::Directory => None,
        Node::File(id) => Some(*id),
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.describe())
    }
}
