//! Threads that live on and do something one after the other.

use std::sync::mpsc::channel;

/// Lets each of so many threads do its work in turn, until it has been done so often; what came of
/// it. It is given how often it was done before. No thread ends before the last has done its work.
pub fn in_turn<T: Send>(threads: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let (reply, replies) = channel();
        let begin: Vec<_> = (0..threads)
            .map(|_| {
                let (send, receive) = channel();
                let reply = reply.clone();
                scope.spawn(move || receive.into_iter().for_each(|number| reply.send(work(number)).unwrap()));
                send
            })
            .collect();
        // A thread that panics is heard of by its scope.
        let turn = |number: usize| begin[number % threads].send(number).ok().and_then(|()| replies.recv().ok());
        drop(reply);
        (0..count).map_while(turn).collect()
    })
}
