//! Opening a pool after a crash at any instant, on every medium.

use std::sync::Arc;

use terrane_pmem::{Backend, Dropping, Error, Instruction, Options, PersistenceDomain, Pool, ROOT, Site, Traced};
use terrane_storage::Storage;
use terrane_testkit::crash::{Budget, Controller, Image};

const DOMAINS: [PersistenceDomain; 3] = [PersistenceDomain::Adr, PersistenceDomain::Eadr, PersistenceDomain::PageCache];
const SITE: Site = Site::new("test.root");
const BUDGET: Budget =
    Budget { exhaustive_pending: 10, samples: 300, name_order: terrane_testkit::crash::NameOrder::AnySubset };

/// A word far from the root, on a page of its own.
const OTHER: u64 = 4096;

fn options(domain: PersistenceDomain) -> Options {
    Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, domain) }
}

fn open(storage: &dyn Storage, domain: PersistenceDomain) -> terrane_pmem::Result<Pool<Traced>> {
    Pool::open(storage, "pool", &options(domain))
}

/// Two sessions that are closed and one that is not. Each stores its number into two words, the
/// second word first. Marks tell which session was persisted, and `CLOSED` that a close has
/// returned.
fn sessions(storage: &dyn Storage, controller: &Controller, domain: PersistenceDomain) {
    for session in 1..=3 {
        let pool = match session {
            1 => Pool::create(storage, "pool", &options(domain)).unwrap(),
            _ => open(storage, domain).unwrap(),
        };
        let backend: &Traced = pool.backend();
        for offset in [OTHER, ROOT] {
            backend.store(offset, session);
            backend.persist(offset..offset + 8, SITE);
        }
        controller.mark(session);
        if session < 3 {
            pool.close().unwrap();
        }
    }
}

#[derive(Debug, PartialEq)]
enum Found {
    Nothing,
    Untrusted,
    Right,
}

/// Opens the state that a crash has left, and checks it.
fn recover(image: &Image, storage: &dyn Storage, domain: PersistenceDomain, persisted: u64) -> Found {
    if !storage.exists("pool").unwrap() {
        assert_eq!(persisted, 0, "{image:?}");
        return Found::Nothing;
    }
    match open(storage, domain) {
        Ok(pool) => {
            let (root, other) = (pool.backend().load(ROOT), pool.backend().load(OTHER));
            assert!(other == root || other == root + 1, "{root} before {other}: {image:?}");
            assert!(root == persisted || root == persisted + 1, "{root} instead of {persisted}: {image:?}");
            pool.close().unwrap();
            assert_eq!(open(storage, domain).unwrap().backend().load(ROOT), root, "{image:?}");
            Found::Right
        }
        Err(Error::Untrusted { .. }) if domain == PersistenceDomain::PageCache => Found::Untrusted,
        Err(error) => panic!("{error}: {image:?}"),
    }
}

#[test]
fn after_a_power_loss_at_any_instant_a_pool_is_right_or_on_the_page_cache_refused() {
    for domain in DOMAINS {
        let controller = Controller::new();
        sessions(&*controller.storage(), &controller, domain);
        let mut refused = 0;
        for cut in 0..=controller.events() {
            let persisted = controller.marks(cut).last().copied().unwrap_or(0);
            for image in controller.images(cut, &BUDGET, 1) {
                refused += u32::from(recover(&image, &*image.storage(), domain, persisted) == Found::Untrusted);
            }
        }
        assert_eq!(refused > 0, domain == PersistenceDomain::PageCache, "{domain:?}: {refused} were refused");
    }
}

#[test]
fn after_a_kill_at_any_instant_a_pool_is_right() {
    for domain in DOMAINS {
        let controller = Controller::new();
        sessions(&*controller.storage(), &controller, domain);
        for cut in 0..=controller.events() {
            let persisted = controller.marks(cut).last().copied().unwrap_or(0);
            let image = controller.process_kill(cut);
            let expected = if image.files().any(|name| name == "pool") { Found::Right } else { Found::Nothing };
            assert_eq!(recover(&image, &*image.storage(), domain, persisted), expected, "{image:?}");
        }
    }
}

/// Kills a session, opens the pool again, and loses power at any instant of that.
#[test]
fn a_power_loss_while_a_pool_is_opened_after_a_kill_is_noticed() {
    for domain in DOMAINS {
        let first: Arc<Controller> = Controller::new();
        sessions(&*first.storage(), &first, domain);
        for killed_at in first.events() - 40..=first.events() {
            let persisted = first.marks(killed_at).last().copied().unwrap_or(0);
            let second = first.process_kill(killed_at).restart();
            let storage = second.storage();
            drop(open(&*storage, domain).unwrap());
            for cut in 0..=second.events() {
                for image in second.images(cut, &Budget { samples: 20, ..BUDGET }, 1) {
                    recover(&image, &*image.storage(), domain, persisted);
                }
            }
        }
    }
}

/// Kills an opening of a closed pool, which may not have synced its mark "open" yet, and opens the
/// pool again. Stores of that session are not trusted after a power loss.
#[test]
fn stores_after_an_opening_that_was_killed_before_are_not_trusted_after_a_power_loss() {
    let domain = PersistenceDomain::PageCache;
    let first = Controller::new();
    Pool::<Traced>::create(&*first.storage(), "pool", &options(domain)).unwrap().close().unwrap();
    let closed = first.events();
    drop(open(&*first.storage(), domain).unwrap());
    for killed_at in closed..=first.events() {
        let second = first.process_kill(killed_at).restart();
        let pool = open(&*second.storage(), domain).unwrap();
        [ROOT, OTHER].into_iter().for_each(|offset| pool.backend().store(offset, 9));
        drop(pool);
        for image in second.images(second.events(), &Budget { samples: 60, ..BUDGET }, 1) {
            let opened = open(&*image.storage(), domain).map(|pool| pool.backend().load(ROOT));
            assert!(matches!(opened, Err(Error::Untrusted { .. })), "{opened:?}, killed at {killed_at}: {image:?}");
        }
    }
}

#[test]
fn what_is_read_after_a_kill_survives_a_power_loss_whatever_the_medium_was_before() {
    what_is_read_survives_a_power_loss(drop);
}

#[test]
fn what_is_read_after_a_close_survives_a_power_loss_whatever_the_medium_was_before() {
    what_is_read_survives_a_power_loss(|pool| pool.close().unwrap());
}

fn what_is_read_survives_a_power_loss(end: impl Fn(Pool<Traced>)) {
    for (before, after) in DOMAINS.into_iter().flat_map(|before| DOMAINS.map(|after| (before, after))) {
        let killed = Controller::new();
        let pool: Pool<Traced> = Pool::create(&*killed.storage(), "pool", &options(before)).unwrap();
        pool.backend().store(ROOT, 9);
        pool.backend().store(OTHER, 5);
        end(pool);
        let controller = killed.process_kill(killed.events()).restart();
        let pool = open(&*controller.storage(), after).unwrap();
        let read = [ROOT, OTHER].map(|offset| pool.backend().load(offset));
        assert_eq!(read, [9, 5], "{before:?} then {after:?}");
        // Not flushed: on the page cache it may vanish, and then the pool is refused.
        pool.backend().store(ROOT, 7);
        drop(pool);
        for image in controller.images(controller.events(), &BUDGET, 1) {
            let is_flushed = after != PersistenceDomain::Adr;
            match open(&*image.storage(), after) {
                Ok(reopened) => {
                    let found = reopened.backend().load(ROOT);
                    assert!(found == 7 || !is_flushed && found == 9, "{found}, {before:?} then {after:?}: {image:?}");
                    // This session stores nothing into its line, so its durability depends on the
                    // opening alone.
                    let found = reopened.backend().load(OTHER);
                    assert_eq!(found, 5, "{before:?} then {after:?}: {image:?}");
                }
                Err(error) => assert!(after == PersistenceDomain::PageCache, "{error}: {image:?}"),
            }
        }
    }
}

/// Kills a pool while it is closed, opens it, and loses power at any instant of that. Gives whether
/// a pool is left each time.
fn openings_after_kills_leave_a_pool(dropped: Option<(Instruction, &str)>) -> bool {
    let domain = PersistenceDomain::Adr;
    let first = Controller::new();
    let pool: Pool<Traced> = Pool::create(&*first.storage(), "pool", &options(domain)).unwrap();
    let created = first.events();
    pool.close().unwrap();
    (created..=first.events()).all(|killed_at| {
        let second = first.process_kill(killed_at).restart();
        let storage = second.storage();
        let open_again = || Pool::<Dropping<Traced>>::open(&*storage, "pool", &options(domain)).map(drop);
        match dropped {
            Some((instruction, site)) => Dropping::<Traced>::leaving_out(instruction, site, open_again),
            None => open_again(),
        }
        .unwrap();
        (0..=second.events()).all(|cut| {
            let mut images = second.images(cut, &Budget { samples: 60, ..BUDGET }, 1);
            images.all(|image| open(&*image.storage(), domain).is_ok())
        })
    })
}

/// Opens a closed pool and skips openings, which writes the header twice without a sync in between,
/// and loses power at any instant of that. Gives whether a pool is left each time.
fn two_writings_leave_a_pool(dropped: Option<(Instruction, &str)>) -> bool {
    let domain = PersistenceDomain::Adr;
    let first = Controller::new();
    Pool::<Traced>::create(&*first.storage(), "pool", &options(domain)).unwrap().close().unwrap();
    let second = first.process_kill(first.events()).restart();
    let storage = second.storage();
    let write_twice = || Pool::<Dropping<Traced>>::open(&*storage, "pool", &options(domain)).unwrap().skip_openings(9);
    match dropped {
        Some((instruction, site)) => Dropping::<Traced>::leaving_out(instruction, site, write_twice),
        None => write_twice(),
    }
    (0..=second.events()).all(|cut| {
        second.images(cut, &Budget { samples: 60, ..BUDGET }, 1).all(|image| open(&*image.storage(), domain).is_ok())
    })
}

fn cannot_be_left_out(site: &str, leaves_a_pool: impl Fn(Option<(Instruction, &str)>) -> bool) {
    assert!(leaves_a_pool(None));
    for instruction in [Instruction::Flush, Instruction::Fence] {
        assert!(!leaves_a_pool(Some((instruction, site))), "{instruction:?} can be left out");
    }
}

#[test]
fn a_header_that_was_found_is_durable_before_the_other_copy_is_written() {
    cannot_be_left_out("pool.header.found", openings_after_kills_leave_a_pool);
}

#[test]
fn the_second_copy_of_a_header_is_durable_before_the_first_one_is_written_again() {
    cannot_be_left_out("pool.header.second", two_writings_leave_a_pool);
}

/// A pool on the page cache belongs to the boot in which it was last opened, not made.
#[test]
fn a_pool_of_an_earlier_boot_is_opened_again_after_a_kill_in_this_one() {
    for domain in DOMAINS {
        let first = Controller::new();
        Pool::<Traced>::create(&*first.storage(), "pool", &options(domain)).unwrap().close().unwrap();
        let gone_down =
            |controller: &Controller| controller.images(controller.events(), &BUDGET, 1).next().unwrap().restart();
        let second = gone_down(&first);
        drop(open(&*second.storage(), domain).unwrap());
        let killed = second.process_kill(second.events()).restart();
        drop(open(&*killed.storage(), domain).unwrap());
        let third = open(&*gone_down(&killed).storage(), domain);
        match domain {
            PersistenceDomain::PageCache => assert!(matches!(third, Err(Error::Untrusted { .. })), "{third:?}"),
            PersistenceDomain::Adr | PersistenceDomain::Eadr => drop(third.unwrap()),
        }
    }
}
