//! Threads that stay alive and work one after the other.

use std::sync::mpsc::channel;

/// Lets each of `threads` threads work in turn, `count` times in all, and gives the results. `work`
/// gets the number of earlier calls. No thread ends before the last has done its work.
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
        // The scope reports a thread that panics.
        let turn = |number: usize| begin[number % threads].send(number).ok().and_then(|()| replies.recv().ok());
        drop(reply);
        (0..count).map_while(turn).collect()
    })
}
