//! What a file's medium promises.
//!
//! - *DAX* is tried, not asked for: it is a mapping with MAP_SYNC that succeeds
//!   ([`Native`](crate::Native) tries).
//! - *eADR* comes from the kernel, which describes the device's region ([`persistence_domain`]). If
//!   the kernel says that there is none, a pool that asks for it is refused. If the kernel says
//!   nothing, the caller has to declare it.
//! - *The page cache* keeps a pool over a kill of the process, on file systems that change files in
//!   place ([`page_cache`]).

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::PersistenceDomain;

/// Why a file system cannot keep a pool in the page cache, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file_system} is not accepted: {reason}; put it on ext4, XFS or tmpfs")]
pub struct Refusal {
    /// Name of the file system, or its number.
    pub file_system: String,
    /// The property that rules it out.
    pub reason: &'static str,
}

const COPIES: &str = "it is copy-on-write, so a store to reserved space can still meet a full disk, and a signal then ends \
     the process";
const LAYERED: &str = "it passes mappings to another file system, whose behaviour is unknown";
const REMOTE: &str = "it is shared with other machines, and stores may be lost on the way";
const UNKNOWN: &str = "it is not known to keep stores to a mapping after a kill of the process";

/// The known file systems, by the number that `statfs` gives, each with a reason to refuse it, if
/// any.
const FILE_SYSTEMS: [(u64, &str, Option<&str>); 15] = [
    (0xef53, "ext4", None),
    (0x5846_5342, "XFS", None),
    (0x0102_1994, "tmpfs", None),
    (0x9123_683e, "Btrfs", Some(COPIES)),
    (0x2fc1_2fc1, "ZFS", Some(COPIES)),
    (0xca45_1a4e, "bcachefs", Some(COPIES)),
    (0xf2f5_2010, "F2FS", Some(COPIES)),
    (0x794c_7630, "overlayfs", Some(LAYERED)),
    (0xf15f, "eCryptfs", Some(LAYERED)),
    (0x6573_5546, "FUSE", Some(LAYERED)),
    (0x0102_1997, "9P", Some(REMOTE)),
    (0x6969, "NFS", Some(REMOTE)),
    (0xff53_4d42, "CIFS", Some(REMOTE)),
    (0xfe53_4d42, "SMB", Some(REMOTE)),
    (0x00c3_6400, "Ceph", Some(REMOTE)),
];

/// Checks that a file's system keeps stores to a mapping over a kill of the process. Such a file
/// system also never meets a full disk in space that was reserved, unless a copy shares it since.
pub fn page_cache(file: BorrowedFd<'_>) -> Result<(), Refusal> {
    match rustix::fs::fstatfs(file) {
        // The type is signed on some machines. The number has 32 bits.
        Ok(system) => judge(system.f_type as u64 & 0xffff_ffff),
        Err(_) => Err(Refusal { file_system: "a file system of unknown kind".to_owned(), reason: UNKNOWN }),
    }
}

fn judge(number: u64) -> Result<(), Refusal> {
    match FILE_SYSTEMS.iter().find(|(known, ..)| *known == number) {
        Some((_, _, None)) => Ok(()),
        Some((_, name, Some(reason))) => Err(Refusal { file_system: (*name).to_owned(), reason }),
        None => Err(Refusal { file_system: format!("the file system of kind {number:#x}"), reason: UNKNOWN }),
    }
}

/// How far stores have to get on the persistent memory that holds a file, as the firmware tells the
/// kernel. `None` where the medium is not persistent memory or the kernel does not say.
///
/// Nothing is known of devices that are made of others (device mapper).
pub fn persistence_domain(file: BorrowedFd<'_>) -> Option<PersistenceDomain> {
    let device = rustix::fs::fstat(file).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    region_domain(Path::new("/sys"), &fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?)
}

/// Looks up the domain of the region that a block device lies in.
fn region_domain(root: &Path, device: &Path) -> Option<PersistenceDomain> {
    let above = device.ancestors().take_while(|directory| directory.starts_with(root));
    let text = above.into_iter().find_map(|directory| fs::read_to_string(directory.join("persistence_domain")).ok())?;
    match text.trim_end() {
        "cpu_cache" => Some(PersistenceDomain::Eadr),
        "memory_controller" => Some(PersistenceDomain::Adr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn file_systems_that_change_files_in_place_are_accepted_and_others_refused_with_the_reason() {
        for accepted in [0xef53, 0x5846_5342, 0x0102_1994] {
            assert_eq!(judge(accepted), Ok(()), "{accepted:#x}");
        }
        for (number, says) in [
            (0x9123_683e, "Btrfs is not accepted: it is copy-on-write"),
            (0x794c_7630, "overlayfs is not accepted: it passes mappings"),
            (0x6969, "NFS is not accepted: it is shared"),
            (0x1234, "the file system of kind 0x1234 is not accepted: it is not known"),
        ] {
            let message = judge(number).unwrap_err().to_string();
            assert!(message.starts_with(says), "{message}");
            assert!(message.ends_with("put it on ext4, XFS or tmpfs"), "{message}");
        }
    }

    #[test]
    fn a_pseudo_file_system_is_refused() {
        let file = fs::File::open("/proc/self/status").unwrap();
        assert!(page_cache(file.as_fd()).is_err());
        assert_eq!(persistence_domain(file.as_fd()), None);
    }

    #[test]
    fn the_domain_is_what_the_region_above_the_device_says() {
        let root = tempfile::tempdir().unwrap();
        let region = root.path().join("devices/ndbus0/region0");
        let device = region.join("namespace0.0/block/pmem0/pmem0p1");
        fs::create_dir_all(&device).unwrap();
        assert_eq!(region_domain(root.path(), &device), None);
        for (text, domain) in [
            ("cpu_cache\n", Some(PersistenceDomain::Eadr)),
            ("memory_controller\n", Some(PersistenceDomain::Adr)),
            ("\n", None),
        ] {
            fs::write(region.join("persistence_domain"), text).unwrap();
            assert_eq!(region_domain(root.path(), &device), domain, "{text:?}");
        }
    }
}
