//! Being asked to stop: the first SIGINT or SIGTERM ends the reading, so that what was read is
//! written and the store is closed; a second one, unless it comes with the first, ends the process at once.

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

/// Exit code of a process that a signal ended, less the signal's number.
const SIGNAL_EXIT_CODE: i32 = 128;
/// Signals within this time are one: some send theirs to a process and to its group.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// Whether somebody asked to stop.
#[derive(Debug)]
pub struct Stop {
    /// Number of the signal, 0 if there was none.
    signal: Arc<AtomicUsize>,
    /// Readable once a signal has come, or the end.
    wake: UnixStream,
    waker: UnixStream,
    has_ended: AtomicBool,
}

impl Stop {
    /// Listens from now on.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn listen() -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        let signal = Arc::new(AtomicUsize::new(0));
        let is_second = Arc::new(AtomicBool::new(false));
        for number in [SIGINT, SIGTERM] {
            // In this order it is known which signal it was when it wakes.
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
        // It is there to be read already if there is no room for more.
        let _ = (&self.waker).write(&[0]);
    }

    /// An error if the reading is to end.
    ///
    /// # Errors
    /// So.
    pub fn check(&self) -> io::Result<()> {
        match self.signal().is_some() || self.has_ended.load(Ordering::SeqCst) {
            true => Err(io::Error::other("asked to stop")),
            false => Ok(()),
        }
    }

    /// Waits some milliseconds, or until the reading is to end.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn wait(&self, milliseconds: u32) -> io::Result<()> {
        let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(milliseconds) * 1_000_000 };
        match poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], Some(&pause)) {
            Err(Errno::INTR) => Ok(()),
            polled => polled.map(drop).map_err(io::Error::from),
        }
    }

    /// The name of the signal that came, and the exit code that tells of it.
    pub fn signal(&self) -> Option<(&'static str, u8)> {
        let code = |number: i32| u8::try_from(SIGNAL_EXIT_CODE + number).unwrap_or(u8::MAX);
        match i32::try_from(self.signal.load(Ordering::SeqCst)) {
            Ok(SIGINT) => Some(("SIGINT", code(SIGINT))),
            Ok(SIGTERM) => Some(("SIGTERM", code(SIGTERM))),
            _ => None,
        }
    }
}

/// Standard input, of which a read fails once somebody asked to stop.
#[derive(Debug)]
pub struct Input<'a> {
    /// Without a buffer: what lies in one would not wake a wait for the descriptor.
    input: File,
    stop: &'a Stop,
}

impl<'a> Input<'a> {
    /// Standard input.
    ///
    /// # Errors
    /// Of the operating system.
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
