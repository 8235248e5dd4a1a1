//! The threads that verify: as many as there are processors, and a queue that has an end.
//!
//! Parsing a hostile megabyte takes milliseconds. Here they delay the next body, and never a
//! connection, a page or the answer to somebody else.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// The threads. They end when the last clone is gone and the queue is empty.
#[derive(Clone)]
pub struct Crew(Arc<Handle>);

/// Why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undone {
    /// The queue is full.
    Full,
    /// The job panicked: a mistake of ours.
    Broken,
}

struct Handle {
    shared: Arc<Shared>,
    capacity: usize,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    ended: bool,
}

impl Crew {
    pub fn new(threads: usize, capacity: usize) -> std::io::Result<Crew> {
        let shared = Arc::new(Shared::default());
        let crew = Crew(Arc::new(Handle { shared: shared.clone(), capacity }));
        for number in 0..threads.max(1) {
            let shared = shared.clone();
            std::thread::Builder::new().name(format!("verify-{number}")).spawn(move || shared.work())?;
        }
        Ok(crew)
    }

    /// Runs a job on one of the threads.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Undone> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move || drop(sender.send(work())));
        {
            let mut queue = self.0.shared.lock();
            if queue.jobs.len() >= self.0.capacity {
                return Err(Undone::Full);
            }
            queue.jobs.push_back(job);
        }
        self.0.shared.work.notify_one();
        receiver.await.map_err(|_| Undone::Broken)
    }

    /// Jobs that no thread has begun.
    pub fn waiting(&self) -> usize {
        self.0.shared.lock().jobs.len()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No job runs while the queue is locked, so that it is whole whatever happened.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            // Dropping its sender tells whoever waits.
            let _panicked = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.ended {
                return None;
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_panic_is_the_jobs_own() {
        let crew = Crew::new(1, 1).unwrap();
        assert_eq!(crew.run(|| -> u8 { panic!("on purpose") }).await, Err(Undone::Broken));
        assert_eq!(crew.run(|| 7).await, Ok(7));

        let (started, has_started) = oneshot::channel::<()>();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let holder = tokio::spawn({
            let crew = crew.clone();
            async move {
                let work = move || {
                    let _gone = started.send(());
                    let _released = held.recv();
                };
                crew.run(work).await
            }
        });
        has_started.await.unwrap();
        let waiter = tokio::spawn({
            let crew = crew.clone();
            async move { crew.run(|| 8).await }
        });
        while crew.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(crew.run(|| 9).await, Err(Undone::Full));
        release.send(()).unwrap();
        assert_eq!(waiter.await.unwrap(), Ok(8));
        assert_eq!(holder.await.unwrap(), Ok(()));
    }
}
