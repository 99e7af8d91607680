//! How leaves tell which of their entries are valid.

/// How valid entries of a leaf are marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeafForm {
    /// A bitmap in the leaf: an entry is made durable, then its bit.
    #[default]
    Bitmap,
    /// The last word of the entry itself, which becomes durable with its line or not at all.
    /// Insertions take one flush and one fence less. Only for two and three dimensions, where an
    /// entry is one line.
    ///
    /// In an FBR-tree, searches after an opening read every entry of a leaf to learn which are
    /// valid, until an operation changes the leaf. Until then, windows take about a third longer.
    SelfValidating,
}

impl LeafForm {
    /// Its code in a pool.
    pub(super) fn code(self) -> u64 {
        match self {
            Self::Bitmap => 0,
            Self::SelfValidating => 1,
        }
    }

    /// The form with a code.
    pub(super) fn of_code(code: u64) -> Option<Self> {
        [Self::Bitmap, Self::SelfValidating].into_iter().find(|form| form.code() == code)
    }
}
