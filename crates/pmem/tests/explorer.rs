//! Tests of the explorer itself: it catches faults, accepts what is right, and tells how to replay
//! a failure.

use std::sync::atomic::{AtomicU64, Ordering};

use terrane_pmem::explorer::{
    Breadth, Canary, Case, Checked, Cuts, Dropped, Explorer, Failure, Gate, History, Place, Sample, Subject, Tally,
    check_canary, gate, replay, sample, shrink,
};
use terrane_pmem::{Backend, Dropping, Instruction, LINE_LENGTH, PersistenceDomain, ROOT, Site, Traced, WORD_LENGTH};
use terrane_storage::Storage;

const BREADTH: Breadth = Breadth { branches: 64, samples: 8, seed: 1 };
const RIGHT: Canary = Canary { is_right: true, domain: PersistenceDomain::Adr };
const WRONG: Canary = Canary { is_right: false, ..RIGHT };
const CACHED: Canary = Canary { domain: PersistenceDomain::PageCache, ..RIGHT };

const GATE: Gate =
    Gate { seeds: 0..2, only: None, breadth: BREADTH, near: BREADTH, names_stride: 1, in_all: true, inside_stride: 1 };

#[test]
fn what_is_wrong_on_purpose_is_caught_and_what_is_right_is_not() {
    let failure = check_canary(&BREADTH).unwrap();
    assert!(failure.to_string().contains("replay: terrane-lab crash canary --replay 'wrong; "), "{failure}");
    // A search that tries nothing catches nothing, and the canary shows that.
    let blind = Breadth { branches: 0, samples: 0, seed: 1 };
    let report = check_canary(&blind).unwrap_err();
    assert!(report.contains("the explorer is broken"), "{report}");
}

#[test]
fn random_histories_find_it_too() {
    let options = Sample { seed: 5, images: 100_000, dropped: None };
    let (tally, failure) = sample(&[WRONG], &options);
    assert!(failure.is_some() && tally.images < 10_000, "{tally:?}");
    let (tally, failure) = sample(&[RIGHT], &Sample { images: 2000, ..options });
    assert!(failure.is_none() && tally.images >= 2000 && tally.distinct < tally.images, "{tally:?}");
}

/// Other threads have begun a second history by then.
#[test]
fn random_histories_are_counted_as_one_thread_would_draw_them() {
    let of_images = |images| sample(&[RIGHT], &Sample { seed: 5, images, dropped: None }).0;
    let first = of_images(1);
    assert_eq!(first.histories, 1, "{first:?}");
    for _ in 0..20 {
        assert_eq!(of_images(first.images), first);
    }
    assert_eq!(of_images(first.images + 1).histories, 2);
}

#[test]
fn a_failure_shrinks_to_the_step_the_cut_and_the_stores_that_matter_and_replays() {
    let history = History::record(&WRONG, WRONG.steps(0), None).unwrap();
    let mut explorer = Explorer::new(&WRONG);
    // Only the last step.
    let failure = *explorer.all_power_losses(&history, 3, &BREADTH).unwrap_err();
    assert_eq!(failure.case.steps.len(), 4);
    let failure = shrink(&WRONG, failure);
    assert_eq!((failure.case.steps.len(), failure.case.crashes.len()), (1, 1), "{failure}");
    // The second store of one entry is lost.
    assert_eq!(failure.crashes[0].matches("store of").count(), 1, "{failure}");
    let case: Case<_> = failure.case.to_string().parse().unwrap();
    assert_eq!(case, failure.case);
    let again = replay(&WRONG, &case).unwrap().expect("it goes wrong again");
    assert_eq!((again.problem, again.crashes), (failure.problem, failure.crashes));
    assert!(replay(&RIGHT, &case).is_err(), "the choice is of other stores");
}

#[test]
fn a_failure_in_what_is_done_after_a_recovery_shrinks_and_replays() {
    let history = History::record(&WRONG, WRONG.steps(0), None).unwrap();
    let mut explorer = Explorer::new(&WRONG);
    let first = history.ends().next().unwrap();
    let failure = *explorer.after_recovery(&history, first, 3, Cuts::All, &BREADTH).unwrap_err();
    assert_eq!((failure.case.crashes[0].then.len(), failure.case.crashes.len()), (3, 2), "{failure}");
    let failure = shrink(&WRONG, failure);
    let Case { steps, crashes, .. } = &failure.case;
    assert_eq!((steps.len(), crashes[0].then.len(), crashes.len()), (0, 1, 2), "{failure}");
    let case: Case<_> = failure.case.to_string().parse().unwrap();
    assert_eq!(case, failure.case);
    let again = replay(&WRONG, &case).unwrap().expect("it goes wrong again");
    assert_eq!((again.problem, again.crashes), (failure.problem, failure.crashes));
    let history = History::record(&RIGHT, RIGHT.steps(0), None).unwrap();
    for cut in history.cuts_from(0) {
        Explorer::new(&RIGHT).after_recovery(&history, cut, 3, Cuts::All, &BREADTH).unwrap();
    }
}

#[test]
fn a_failure_after_many_recoveries_replays_and_what_is_right_survives_them() {
    let chained = |subject: &Canary, seed: u64| {
        let steps: Vec<_> = (0..4).flat_map(|number| subject.steps(number)).collect();
        Explorer::new(subject).chain(&steps, 2, seed)
    };
    let recoveries = |failure: &Failure<_>| failure.case.crashes.iter().filter(|crash| !crash.then.is_empty()).count();
    let failures = (0..200).filter_map(|seed| chained(&WRONG, seed).err());
    let failure = failures.max_by_key(|failure| recoveries(failure)).unwrap();
    assert!(recoveries(&failure) > 2, "{failure}");
    for failure in [*failure.clone(), shrink(&WRONG, *failure)] {
        let case: Case<_> = failure.case.to_string().parse().unwrap();
        assert_eq!(case, failure.case);
        let again = replay(&WRONG, &case).unwrap().expect("it goes wrong again");
        assert_eq!((again.problem, again.crashes), (failure.problem, failure.crashes));
    }
    (0..200).for_each(|seed| chained(&RIGHT, seed).unwrap());
}

#[test]
fn the_gate_names_what_shows_each_instruction_and_what_nothing_shows() {
    let report = gate(&[RIGHT], &GATE).unwrap();
    assert!(report.is_closed() && report.caught.len() == 4, "{report}");
    let dropped = Dropped { instruction: Instruction::Fence, site: "canary.entry".to_owned() };
    assert!(report.names().contains(&dropped), "{report}");
    let one = gate(&[RIGHT], &Gate { only: Some(dropped.clone()), ..GATE }).unwrap();
    assert!(one.is_closed() && one.names() == [&dropped].into(), "{one}");
    let few = Breadth { branches: 1, samples: 0, seed: 1 };
    let blind = Gate { breadth: few, near: few, ..GATE };
    let blind = gate(&[RIGHT], &blind).unwrap();
    assert!(!blind.uncaught.is_empty() && blind.unreached.is_empty() && blind.unlisted.is_empty(), "{blind}");
    assert!(!blind.is_closed(), "it cannot have tried enough");
}

type Opening = fn(&dyn Storage) -> Checked<<Canary as Subject>::Structure>;

/// A right canary that counts its uses after recovery. It cannot be used once it holds a given
/// number of entries. It may be opened in another way, and list other places.
struct Brittle {
    canary: Canary,
    unusable_with: usize,
    worked_on: AtomicU64,
    domain: PersistenceDomain,
    opening: Opening,
    places: Vec<Place>,
}

impl Brittle {
    fn new(unusable_with: usize, opening: Opening) -> Self {
        let (canary, worked_on) = (RIGHT, AtomicU64::new(0));
        Self { canary, unusable_with, worked_on, domain: canary.domain(), opening, places: canary.places() }
    }
}

impl Subject for Brittle {
    type Structure = <Canary as Subject>::Structure;
    type Step = <Canary as Subject>::Step;
    type Model = <Canary as Subject>::Model;

    fn structure(&self) -> &'static str {
        RIGHT.structure()
    }

    fn configuration(&self) -> &str {
        "brittle"
    }

    fn domain(&self) -> PersistenceDomain {
        self.domain
    }

    fn create(&self, storage: &dyn Storage) -> Checked<Self::Structure> {
        self.canary.create(storage)
    }

    fn open(&self, storage: &dyn Storage) -> Checked<Self::Structure> {
        (self.opening)(storage)
    }

    fn steps(&self, seed: u64) -> Vec<Self::Step> {
        RIGHT.steps(seed)
    }

    fn apply(&self, structure: &Self::Structure, model: &mut Self::Model, step: &Self::Step) -> Checked<()> {
        RIGHT.apply(structure, model, step)
    }

    fn observe(&self, structure: &mut Self::Structure) -> Checked<Self::Model> {
        RIGHT.observe(structure)
    }

    fn check_usable(&self, structure: &mut Self::Structure, model: Self::Model) -> Checked<()> {
        self.worked_on.fetch_add(1, Ordering::Relaxed);
        if model.len() == self.unusable_with {
            return Err("it cannot be used".to_owned());
        }
        RIGHT.check_usable(structure, model)
    }

    fn places(&self) -> Vec<Place> {
        self.places.clone()
    }
}

#[test]
fn the_gate_is_not_closed_where_a_run_comes_to_what_is_not_listed() {
    let places = vec![Place::flush("canary.entry"), Place::both("canary.flag")];
    let subject = Brittle { places, ..Brittle::new(usize::MAX, |storage| RIGHT.open(storage)) };
    let report = gate(&[subject], &GATE).unwrap();
    let unlisted: Vec<String> = report.unlisted.iter().map(Dropped::to_string).collect();
    assert_eq!(unlisted, ["fence:canary.entry"], "{report}");
    assert!(!report.is_closed());
}

#[test]
fn the_gate_is_not_closed_where_no_run_comes_to_what_is_listed() {
    let places = [RIGHT.places(), vec![Place::flush("canary.never")]].concat();
    let subject = Brittle { places, ..Brittle::new(usize::MAX, |storage| RIGHT.open(storage)) };
    let report = gate(&[subject], &GATE).unwrap();
    let unreached: Vec<String> = report.unreached.iter().map(Dropped::to_string).collect();
    assert_eq!(unreached, ["flush:canary.never"], "{report}");
    assert!(report.uncaught.is_empty() && report.unlisted.is_empty() && !report.is_closed(), "{report}");
}

/// On the page cache, no power loss shows the state after an interrupted recovery: the pool is
/// refused.
#[test]
fn kills_in_the_middle_of_recoveries_are_tried_where_no_loss_of_power_is_survived() {
    let opening: Opening = |storage| {
        let structure = CACHED.open(storage)?;
        // Behind the first flag.
        let begun = structure.backend().load(ROOT) + WORD_LENGTH;
        if structure.backend().load(begun) != 0 {
            return Err("a recovery was interrupted".to_owned());
        }
        structure.backend().store(begun, 1);
        structure.backend().store(begun, 0);
        Ok(structure)
    };
    let search = |opening| {
        let subject = Brittle { canary: CACHED, domain: CACHED.domain(), ..Brittle::new(usize::MAX, opening) };
        let history = History::record(&subject, subject.steps(0), None).unwrap();
        let mut explorer = Explorer::new(&subject);
        explorer.all_crashes(&history, 0, &BREADTH).unwrap();
        let outcome = explorer.inside_all_recoveries(&history, 0, &BREADTH, &mut Default::default());
        outcome.err().map(|failure| failure.problem)
    };
    assert_eq!(search(opening).as_deref(), Some("a recovery was interrupted"));
    assert_eq!(search(|storage| CACHED.open(storage)), None);
}

/// Where pages may be lost, opening has to report it. It may neither panic nor open a wrong state.
#[test]
fn where_pages_may_be_lost_nothing_but_a_refusal_will_do() {
    let search = |opening: Opening, unusable_with| {
        let subject = Brittle { domain: PersistenceDomain::PageCache, ..Brittle::new(unusable_with, opening) };
        let history = History::record(&subject, subject.steps(0), None).unwrap();
        let outcome = Explorer::new(&subject).all_power_losses(&history, 0, &BREADTH);
        outcome.err().map_or_else(|| "nothing".to_owned(), |failure| failure.problem)
    };
    assert_eq!(search(|_| Err("pages may be lost".to_owned()), usize::MAX), "nothing");
    assert_eq!(search(|_| panic!("an offset of a lost page"), usize::MAX), "a panic: an offset of a lost page");
    assert_eq!(search(|storage| RIGHT.open(storage), usize::MAX), "it was opened although pages may be lost");
    assert_eq!(search(|storage| RIGHT.open(storage), 0), "it cannot be used");
}

#[test]
fn what_recoveries_leave_is_used_further_and_seldom_twice() {
    let search = |unusable_with| {
        let subject = Brittle::new(unusable_with, |storage| RIGHT.open(storage));
        let history = History::record(&subject, subject.steps(0), None).unwrap();
        let mut explorer = Explorer::new(&subject);
        let outcome = explorer
            .all_power_losses(&history, 0, &BREADTH)
            .and_then(|()| explorer.inside_all_recoveries(&history, 0, &BREADTH, &mut Default::default()));
        let failure = outcome.err().map(|failure| failure.problem);
        (failure, explorer.tally.distinct, subject.worked_on.load(Ordering::Relaxed))
    };
    let (failure, distinct, worked_on) = search(usize::MAX);
    assert_eq!(failure, None);
    assert!(0 < worked_on && worked_on < distinct, "{worked_on} of {distinct}");
    for entries in 0..=4 {
        assert_eq!(search(entries).0.as_deref(), Some("it cannot be used"), "{entries} entries");
    }
}

#[test]
fn what_is_lost_after_a_recovery_is_noticed_at_the_next_crash() {
    let chained = |opening: Opening, seed: u64| {
        let subject = Brittle::new(usize::MAX, opening);
        Explorer::new(&subject).chain(&subject.steps(0), 1, seed).err()
    };
    let forgetting: Opening =
        |storage| Dropping::<Traced>::leaving_out(Instruction::Flush, "canary.flag", || RIGHT.open(storage));
    let failures: Vec<_> = (0..20).filter_map(|seed| chained(forgetting, seed)).collect();
    assert!(
        !failures.is_empty() && failures.iter().all(|failure| failure.problem.contains("instead of")),
        "{failures:?}"
    );
    assert!((0..20).all(|seed| chained(|storage| RIGHT.open(storage), seed).is_none()));
}

/// Completes the step in progress if its entry exists, and shows that, durably or not. It does so
/// once, as it notes.
fn completing<const IS_DURABLE: bool>(storage: &dyn Storage) -> Checked<<Canary as Subject>::Structure> {
    let mut structure = RIGHT.open(storage)?;
    let next = RIGHT.observe(&mut structure)?.len() as u64;
    let backend = structure.backend();
    let flag = backend.load(ROOT) + next * 2 * LINE_LENGTH;
    let entry = [LINE_LENGTH, LINE_LENGTH + WORD_LENGTH].map(|word| backend.load(flag + word));
    let note = flag + WORD_LENGTH;
    if entry[0] != 0 && entry[0] == entry[1] && backend.load(note) == 0 {
        backend.store(note, 1);
        backend.persist(note..note + WORD_LENGTH, SITE);
        backend.store(flag, 1);
        if IS_DURABLE {
            backend.persist(flag..flag + WORD_LENGTH, SITE);
        }
    }
    Ok(structure)
}

/// The contents before or after the step in progress are right, until a recovery decides between
/// them.
#[test]
fn what_a_recovery_has_shown_may_not_be_lost_right_after_it() {
    let search = |opening: Opening| {
        let subject = Brittle::new(usize::MAX, opening);
        let history = History::record(&subject, subject.steps(0), None).unwrap();
        Explorer::new(&subject).inside_all_recoveries(&history, 0, &BREADTH, &mut Default::default()).err()
    };
    let failure = search(completing::<false>).unwrap();
    assert!(failure.problem.contains("instead of"), "{failure}");
    assert!(search(completing::<true>).is_none());
}

/// Recovery may know of the step in progress, but not of one that was not begun.
#[test]
fn what_comes_too_early_is_noticed() {
    let ahead: Opening = |storage| {
        let mut structure = RIGHT.open(storage)?;
        let mut model = RIGHT.observe(&mut structure)?;
        let (steps, done) = (RIGHT.steps(0), model.len());
        steps.iter().skip(done).take(2).try_for_each(|step| RIGHT.apply(&structure, &mut model, step))?;
        Ok(structure)
    };
    let subject = Brittle::new(usize::MAX, ahead);
    let history = History::record(&subject, subject.steps(0), None).unwrap();
    let first = history.ends().next().unwrap();
    let failure = *Explorer::new(&subject).kill(&history, first).unwrap_err();
    assert!(failure.problem.contains("instead of"), "{failure}");
}

/// All of it is deterministic. Where the subject is right, nothing else would notice that a search
/// tries less.
#[test]
fn as_much_is_tried_as_ever() {
    let counts = |tally: Tally| [tally.cuts, tally.cuts_sampled, tally.images];
    let of = |domain| {
        let subject = Canary { domain, ..RIGHT };
        let history = History::record(&subject, subject.steps(0), None).unwrap();
        let few = Breadth { branches: 3, ..BREADTH };
        let [mut losses, mut all, mut inside] = [(); 3].map(|()| Explorer::new(&subject));
        losses.all_power_losses(&history, 0, &few).unwrap();
        all.all_crashes(&history, 0, &few).unwrap();
        let kills = history.cuts_from(0).count() as u64;
        assert_eq!((all.tally.histories, all.tally.images), (1, losses.tally.images + kills));
        inside.inside_all_recoveries(&history, 0, &few, &mut Default::default()).unwrap();
        let (sampled, _) = sample(&[subject], &Sample { seed: 5, images: 1, dropped: None });
        [losses.tally, inside.tally, sampled].map(counts)
    };
    // Cuts, cuts with some images left out, images.
    assert_eq!(of(PersistenceDomain::Adr), [[23, 2, 50], [383, 102, 5428], [126, 14, 916]]);
    assert_eq!(of(PersistenceDomain::Eadr), [[175, 0, 176], [4058, 0, 8129], [394, 0, 748]]);
    assert_eq!(of(PersistenceDomain::PageCache), [[22, 22, 166], [118, 118, 1935], [35, 35, 448]]);
}

/// Two words in one line, which a step does not flush. Only what follows a recovery reads them.
struct Forgetful;

impl Forgetful {
    /// The flag that marks a step in progress, and the words.
    fn places(structure: &<Canary as Subject>::Structure) -> (u64, u64) {
        let flag = structure.backend().load(ROOT);
        (flag, flag + LINE_LENGTH)
    }

    fn store(structure: &<Canary as Subject>::Structure, words: u64, value: u64) {
        structure.backend().store(words, value);
        structure.backend().store(words + WORD_LENGTH, value);
    }

    fn store_durably(structure: &<Canary as Subject>::Structure, words: u64, value: u64) {
        Self::store(structure, words, value);
        structure.backend().persist(words..words + 2 * WORD_LENGTH, SITE);
    }
}

const SITE: Site = Site::new("forgetful.words");

impl Subject for Forgetful {
    type Structure = <Canary as Subject>::Structure;
    type Step = <Canary as Subject>::Step;
    type Model = ();

    fn structure(&self) -> &'static str {
        "forgetful"
    }

    fn configuration(&self) -> &str {
        "forgetful"
    }

    fn domain(&self) -> PersistenceDomain {
        RIGHT.domain()
    }

    fn create(&self, storage: &dyn Storage) -> Checked<Self::Structure> {
        RIGHT.create(storage)
    }

    /// Turns a step in progress into one of threes.
    fn open(&self, storage: &dyn Storage) -> Checked<Self::Structure> {
        let structure = RIGHT.open(storage)?;
        let (flag, words) = Self::places(&structure);
        if structure.backend().load(flag) != 0 {
            Self::store_durably(&structure, words, 3);
            Self::store_durably(&structure, flag, 0);
        }
        Ok(structure)
    }

    fn steps(&self, seed: u64) -> Vec<Self::Step> {
        RIGHT.steps(seed)
    }

    fn apply(&self, structure: &Self::Structure, (): &mut (), _step: &Self::Step) -> Checked<()> {
        let (flag, words) = Self::places(structure);
        Self::store_durably(structure, words, 5);
        Self::store_durably(structure, flag, 1);
        Self::store_durably(structure, words, 3);
        Self::store(structure, words, 4);
        Self::store_durably(structure, flag, 0);
        Ok(())
    }

    fn observe(&self, _structure: &mut Self::Structure) -> Checked<()> {
        Ok(())
    }

    fn check_usable(&self, structure: &mut Self::Structure, (): ()) -> Checked<()> {
        let (_, words) = Self::places(structure);
        let [first, second] = [words, words + WORD_LENGTH].map(|word| structure.backend().load(word));
        if (first, second) == (4, 3) { Err("it is torn".to_owned()) } else { Ok(()) }
    }

    fn places(&self) -> Vec<Place> {
        Vec::new()
    }
}

/// The first recovery that leaves the threes has stored them, so they were not read from the disk.
/// A later recovery that finds them has to try the other possibilities.
#[test]
fn what_a_recovery_has_stored_may_be_read_after_another_one() {
    let history = History::record(&Forgetful, Forgetful.steps(0)[..1].to_vec(), None).unwrap();
    let failure = *Explorer::new(&Forgetful).all_power_losses(&history, 0, &BREADTH).unwrap_err();
    assert_eq!(failure.problem, "it is torn", "{failure}");
}
