//! Storage that calls a hook of the test when a file is created, opened or removed, or while it is
//! used.

use std::fmt;
use std::sync::{Arc, Mutex};

use terrane_storage::{File, OpenMode, Result, Storage};

type Hook = Box<dyn FnMut(&str) + Send>;
type Wrap = Box<dyn Fn(Arc<dyn File>) -> Arc<dyn File> + Send + Sync>;

/// Passes all calls on. Calls a hook before a file is created, another one after a file was opened
/// or created, and a third before one is removed. Not inside the hook.
pub struct HookedStorage {
    inner: Arc<dyn Storage>,
    hook: Mutex<Option<Hook>>,
    opened: Mutex<Option<Hook>>,
    removed: Mutex<Option<Hook>>,
    wrap: Option<Wrap>,
}

impl fmt::Debug for HookedStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedStorage").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl HookedStorage {
    /// Without a hook.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, hook: Mutex::new(None), opened: Mutex::new(None), removed: Mutex::new(None), wrap: None }
    }

    /// With files that `wrap` makes of those of `inner`.
    pub fn wrapping(
        inner: Arc<dyn Storage>,
        wrap: impl Fn(Arc<dyn File>) -> Arc<dyn File> + Send + Sync + 'static,
    ) -> Self {
        Self { wrap: Some(Box::new(wrap)), ..Self::new(inner) }
    }

    /// Calls `hook` with the name of every file that is created from now on.
    pub fn on_create(&self, hook: impl FnMut(&str) + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// Calls `hook` with the name of every file that is opened from now on.
    pub fn on_opened(&self, hook: impl FnMut(&str) + Send + 'static) {
        *self.opened.lock().unwrap() = Some(Box::new(hook));
    }

    /// Calls `hook` with the name of every file before it is removed from now on.
    pub fn on_remove(&self, hook: impl FnMut(&str) + Send + 'static) {
        *self.removed.lock().unwrap() = Some(Box::new(hook));
    }

    /// Calls no hook any more.
    pub fn unhook(&self) {
        *self.removed.lock().unwrap() = None;
        *self.hook.lock().unwrap() = None;
        *self.opened.lock().unwrap() = None;
    }
}

fn call(place: &Mutex<Option<Hook>>, name: &str) {
    let hook = place.lock().unwrap().take();
    if let Some(mut hook) = hook {
        hook(name);
        place.lock().unwrap().get_or_insert(hook);
    }
}

impl Storage for HookedStorage {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        if mode == OpenMode::CreateNew {
            call(&self.hook, name);
        }
        let file = self.inner.open(name, mode)?;
        call(&self.opened, name);
        Ok(match &self.wrap {
            Some(wrap) => wrap(file),
            None => file,
        })
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        call(&self.removed, name);
        self.inner.remove(name)
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        self.inner.create_directory(name)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn list_directories(&self, directory: &str) -> Result<Vec<String>> {
        self.inner.list_directories(directory)
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        self.inner.sync_directory(directory)
    }

    fn unix_time_ns(&self) -> u64 {
        self.inner.unix_time_ns()
    }

    fn monotonic_ns(&self) -> u64 {
        self.inner.monotonic_ns()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
