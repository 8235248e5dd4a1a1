//! The connections that questions are asked on, shared by whoever asks.

use std::sync::Mutex;

use super::engine::Engine;
use super::{Place, StoreError, Use};

/// Connections that are kept open between questions.
const KEPT: usize = 8;

pub struct Readers {
    place: Place,
    idle: Mutex<Vec<Box<dyn Engine>>>,
}

impl Readers {
    pub fn new(place: Place) -> Readers {
        Readers { place, idle: Mutex::default() }
    }

    /// Asks on an idle connection or on a new one. One on which a question failed is not used
    /// again. Idle connections may have gone with their server meanwhile: then the question is asked
    /// once more on a new one.
    pub fn ask<T>(&self, question: impl Fn(&mut dyn Engine) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.lock().pop();
        if let Some(engine) = idle {
            match self.ask_on(engine, &question) {
                Err(error) if error.is_gone() => self.lock().clear(),
                answer => return answer,
            }
        }
        self.ask_on(self.place.connect(Use::Reader)?, &question)
    }

    fn ask_on<T>(
        &self,
        mut engine: Box<dyn Engine>,
        question: &impl Fn(&mut dyn Engine) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = question(engine.as_mut())?;
        let mut idle = self.lock();
        if idle.len() < KEPT {
            idle.push(engine);
        }
        Ok(answer)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn Engine>>> {
        // A thread that panicked while it held the list left a whole list.
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
