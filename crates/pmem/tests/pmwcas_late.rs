//! Threads that stop anywhere in a change of a word, while others change it to and fro.

use std::sync::{Arc, Mutex};

use crate::interrupting::{At, Interrupting, Stopped, interrupt};
use crate::pmwcas::create;
use terrane_pmem::pmwcas::{compare_exchange, read};
use terrane_pmem::{Options, PersistenceDomain, Pool};
use terrane_storage::crash::{Budget, Controller, NameOrder};

const BUDGET: Budget = Budget { exhaustive_pending: 8, samples: 20, name_order: NameOrder::AnySubset };

fn options() -> Options {
    Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, PersistenceDomain::Adr) }
}

/// One thread changes 0 to 7 and stops. Another one, if that can be seen by now, changes 7 to 9, and a third one begins to change 9 to 7 and
/// stops too; then the first one goes on. What is read after that survives the power that fails then.
#[test]
fn what_is_read_of_a_value_that_comes_back_survives_a_power_loss() {
    let mut came_back = 0;
    for first in 0.. {
        let mut second = 0;
        let was_interrupted = loop {
            let controller = Controller::new();
            let (pool, words) = create::<Interrupting>(&*controller.storage(), &options(), 1);
            let (pool, word) = (Arc::new(pool), words[0]);
            let third: Arc<Mutex<Option<Stopped>>> = Arc::default();
            let (others, stopped) = (pool.clone(), third.clone());
            let to_and_fro = move || {
                let back = others.clone();
                let forth = move || compare_exchange(&others, word, 7, 9, &others.pin()).unwrap();
                if std::thread::spawn(forth).join().unwrap() == Ok(7) {
                    let back = move || assert_eq!(compare_exchange(&back, word, 9, 7, &back.pin()).unwrap(), Ok(9));
                    *stopped.lock().unwrap() = Some(Stopped::start(At::Change, second, back));
                }
            };
            let change = || compare_exchange(&pool, word, 0, 7, &pool.pin()).unwrap();
            let (outcome, was_interrupted) = interrupt(At::Change, first, to_and_fro, change);
            assert_eq!(outcome, Ok(0));
            let seen = read(&pool, word, &pool.pin()).unwrap();
            let cut = controller.events();
            let has_stopped = Stopped::end(third.lock().unwrap().take()) == [true];
            for image in controller.images(cut, &BUDGET, 1) {
                let pool: Pool<Interrupting> = Pool::open(&*image.storage(), "pool", &options()).unwrap();
                let left = read(&pool, word, &pool.pin()).unwrap();
                assert_eq!(left, seen, "stopped after {first} and {second} changes: {image:?}");
            }
            if !has_stopped {
                break was_interrupted;
            }
            came_back += 1;
            second += 1;
        };
        if !was_interrupted {
            break;
        }
    }
    assert!(came_back > 10, "{came_back}");
}
