//! Stopping on request. The first SIGINT or SIGTERM ends the reading; the records that were read
//! are written and the store is closed. A second one ends the process at once, unless it comes
//! together with the first.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// Base of the exit code for a signal; the signal's number is added.
const SIGNAL_EXIT_CODE: i32 = 128;
/// Signals within this time count as one: some senders signal a process and its group.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// Whether a stop was requested.
#[derive(Debug)]
pub struct Stop {
    /// Number of the signal, 0 if there was none.
    signal: Arc<AtomicUsize>,
    /// Readable once a signal has come, or the reading is to end.
    wake: UnixStream,
    waker: UnixStream,
    has_ended: AtomicBool,
}

impl Stop {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// When the operating system refuses it.
    pub fn listen() -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        let signal = Arc::new(AtomicUsize::new(0));
        let is_second = Arc::new(AtomicBool::new(false));
        for number in [SIGINT, SIGTERM] {
            // The number is stored before the wakeup, so a woken thread knows the signal.
            flag::register_conditional_shutdown(number, SIGNAL_EXIT_CODE + number, is_second.clone())?;
            flag::register_usize(number, signal.clone(), number.unsigned_abs() as usize)?;
            low_level::pipe::register(number, waker.try_clone()?)?;
        }
        let (woken, first) = (wake.try_clone()?, signal.clone());
        thread::spawn(move || {
            while first.load(Ordering::SeqCst) == 0 {
                match poll(&mut [PollFd::new(&woken, PollFlags::IN)], None) {
                    Ok(_) if first.load(Ordering::SeqCst) == 0 => return,
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(_) => return,
                }
            }
            thread::sleep(ONE_SIGNAL);
            is_second.store(true, Ordering::SeqCst);
        });
        Ok(Self { signal, wake, waker, has_ended: AtomicBool::new(false) })
    }

    /// Ends the reading for another reason than a signal.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        // If the pipe is full, it is readable already.
        let _ = (&self.waker).write(&[0]);
    }

    /// An error if the reading is to end.
    ///
    /// # Errors
    /// When it is to end.
    pub fn check(&self) -> io::Result<()> {
        match self.signal().is_some() || self.has_ended.load(Ordering::SeqCst) {
            true => Err(io::Error::other("asked to stop")),
            false => Ok(()),
        }
    }

    /// Waits some milliseconds, or until the reading is to end.
    ///
    /// # Errors
    /// When the operating system refuses it.
    pub fn wait(&self, milliseconds: u32) -> io::Result<()> {
        let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(milliseconds) * 1_000_000 };
        match poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], Some(&pause)) {
            Err(Errno::INTR) => Ok(()),
            polled => polled.map(drop).map_err(io::Error::from),
        }
    }

    /// The name of the signal that came, and the exit code for it.
    pub fn signal(&self) -> Option<(&'static str, u8)> {
        let code = |number: i32| u8::try_from(SIGNAL_EXIT_CODE + number).unwrap_or(u8::MAX);
        match i32::try_from(self.signal.load(Ordering::SeqCst)) {
            Ok(SIGINT) => Some(("SIGINT", code(SIGINT))),
            Ok(SIGTERM) => Some(("SIGTERM", code(SIGTERM))),
            _ => None,
        }
    }
}

/// Standard input; a read fails once a stop was requested.
#[derive(Debug)]
pub struct Input<'a> {
    /// Unbuffered: bytes in a buffer would not wake a wait for the descriptor.
    input: File,
    stop: &'a Stop,
}

impl<'a> Input<'a> {
    /// Standard input.
    ///
    /// # Errors
    /// When the operating system refuses it.
    pub fn new(stop: &'a Stop) -> io::Result<Self> {
        Ok(Self { input: io::stdin().as_fd().try_clone_to_owned()?.into(), stop })
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut descriptors = [PollFd::new(&self.input, PollFlags::IN), PollFd::new(&self.stop.wake, PollFlags::IN)];
        poll(&mut descriptors, None)?;
        self.stop.check()?;
        self.input.read(buffer)
    }
}
