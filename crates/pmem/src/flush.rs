//! The instructions that write cache lines back.

use std::sync::atomic::AtomicU64;

/// How a cache line is written back, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushInstruction {
    /// Writes back and may keep the line in the cache.
    Clwb,
    /// Writes back and drops the line, in any order with other lines.
    Clflushopt,
    /// Writes back and drops the line, in order.
    Clflush,
}

impl FlushInstruction {
    /// The best instruction that this CPU has; `None` where no code for it is known.
    pub fn detect() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{__cpuid, __cpuid_count};
            let extended = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
            if extended >> 24 & 1 == 1 {
                return Some(Self::Clwb);
            }
            if extended >> 23 & 1 == 1 {
                return Some(Self::Clflushopt);
            }
            if __cpuid(1).edx >> 19 & 1 == 1 {
                return Some(Self::Clflush);
            }
        }
        None
    }

    /// Begins to write back the line that holds a word.
    ///
    /// The CPU must have the instruction: see [`FlushInstruction::detect`].
    #[inline]
    #[cfg_attr(
        all(target_arch = "x86_64", not(miri)),
        expect(unsafe_code, reason = "the compiler offers no function for clwb and clflushopt")
    )]
    pub(crate) fn write_back(self, word: &AtomicU64) {
        #[cfg(test)]
        EXECUTED.with_borrow_mut(|executed| executed.push(word.as_ptr().addr()));
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let line = word.as_ptr();
            // SAFETY: the instructions change no memory, no register and no flag. `line` comes from
            // a reference, so the address is mapped. Without the option `nomem`, the compiler does
            // not move stores across the instruction.
            unsafe {
                match self {
                    Self::Clwb => std::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                    Self::Clflushopt => {
                        std::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    Self::Clflush => std::arch::asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
                }
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            let _ = word;
            unreachable!("no instruction was detected on this CPU");
        }
    }
}

#[cfg(test)]
thread_local! {
    /// The instructions that this thread has executed: the address of each write-back, 0 for a
    /// fence.
    pub(crate) static EXECUTED: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Waits until all earlier stores and write-backs of this thread have arrived.
#[inline]
#[cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "the fence has to hold back the compiler's own reordering too")
)]
pub(crate) fn store_fence() {
    #[cfg(test)]
    EXECUTED.with_borrow_mut(|executed| executed.push(0));
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction changes no memory, no register and no flag.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Announces that a word in memory will be read soon.
#[inline]
pub fn prefetch_word(word: &terrane_storage::sync::AtomicU64) {
    #[cfg(not(any(loom, shuttle)))]
    prefetch(std::slice::from_ref(word));
    #[cfg(any(loom, shuttle))]
    let _ = word;
}

/// Asks the CPU to load the lines of these words into its caches.
#[inline]
#[cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "the compiler offers the instruction for raw addresses alone")
)]
pub(crate) fn prefetch(words: &[AtomicU64]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in words.chunks((crate::LINE_LENGTH / crate::WORD_LENGTH) as usize) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every CPU of this kind has the instruction. It reads nothing that the program
        // sees.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = words;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn write_backs_change_nothing() {
        let Some(best) = FlushInstruction::detect() else { return };
        // A CPU with a better instruction has clflush too.
        let word = AtomicU64::new(7);
        for instruction in [best, FlushInstruction::Clflush] {
            instruction.write_back(&word);
            store_fence();
            assert_eq!(word.load(Ordering::Relaxed), 7, "{instruction:?}");
        }
    }
}
