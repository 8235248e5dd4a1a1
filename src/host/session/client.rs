//! The parent's side of the driver session.

use std::time::{Duration, Instant};

use super::{Event, Opening};
use crate::facts::snapshot::{Library, SessionState, Wedge};
use crate::facts::{Answer, Answers, Question};
use crate::isolate::{Broken, Child, parsed};
use crate::reading::Code;

/// How long one question may take. A GSP that does not answer holds a call for 6 s and more
/// (Xid 119/120, open-gpu-kernel-modules#446); a healthy one takes milliseconds, and a cold
/// GPU without persistence mode a few seconds. Far enough from both.
const QUESTION_PATIENCE: Duration = Duration::from_secs(20);
/// How long finding, hashing and initialising may take: eight cold GPUs need half a minute.
const OPENING_PATIENCE: Duration = Duration::from_secs(45);
/// What a question that was asked just before the deadline may still take.
const LAST_QUESTION: Duration = Duration::from_secs(1);
/// Questions in one request; the deadline is looked at between requests.
const BATCH: usize = 128;

/// The session as the parent holds it.
pub struct Session {
    child: Option<Child>,
    state: SessionState,
    pub library: Option<Library>,
    pub cuda_library: Option<Library>,
    /// Why the CUDA library that was found may not be used.
    pub cuda_objection: Option<String>,
}

impl Session {
    /// A session that nobody opened.
    pub fn none() -> Session {
        Session {
            child: None,
            state: SessionState::NotStarted,
            library: None,
            cuda_library: None,
            cuda_objection: None,
        }
    }

    /// Starts the child and waits until it says how far it came. A failure is a state.
    pub fn open(opening: &Opening, deadline: Instant) -> Session {
        let mut session = Session::none();
        let started = Child::start("session").and_then(|mut child| child.send(opening).map(|()| child));
        match started {
            Ok(child) => session.child = Some(child),
            Err(broken) => {
                session.broke("start of the session", broken);
                return session;
            }
        }
        let deadline = deadline.min(Instant::now() + OPENING_PATIENCE);
        for stage in ["search for the driver's libraries", "nvmlInit_v2()"] {
            match session.next(deadline) {
                Ok(event) => session.take(event),
                Err(broken) => {
                    session.broke(stage, broken);
                    return session;
                }
            }
        }
        session
    }

    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Asks these questions in order. The one that hangs or kills the child is `HUNG` or `DIED`,
    /// those behind it are `WEDGED`; what the deadline leaves no time for is not among the answers.
    pub fn ask(&mut self, questions: &[Question], deadline: Instant) -> Answers {
        let mut answers = Answers::default();
        for batch in questions.chunks(BATCH) {
            if self.state == SessionState::Answering && Instant::now() >= deadline {
                break;
            }
            self.ask_batch(batch, deadline + LAST_QUESTION, &mut answers);
        }
        answers
    }

    /// Ends the session. A wedge says that the driver did not let the child go.
    pub fn close(&mut self) -> Option<Wedge> {
        let wedge = self.child.take().and_then(Child::stop);
        self.state = SessionState::NotStarted;
        wedge.map(|wedge| Wedge { question: "nvmlShutdown()".to_owned(), ..wedge })
    }

    fn ask_batch(&mut self, batch: &[Question], deadline: Instant, answers: &mut Answers) {
        if self.state == SessionState::Answering
            && let Some(Err(broken)) = self.child.as_mut().map(|child| child.send(&batch))
        {
            self.broke("request", broken);
        }
        for question in batch {
            let answer = match self.refusal() {
                Some(code) => Answer::refused(code),
                None => self.answer_to(question, deadline.min(Instant::now() + QUESTION_PATIENCE)),
            };
            answers.insert(question.clone(), answer);
        }
    }

    fn answer_to(&mut self, question: &Question, deadline: Instant) -> Answer {
        match self.next(deadline) {
            Ok(answer) => answer,
            Err(broken) => {
                let code = if matches!(broken, Broken::Hung(_)) { Code::HUNG } else { Code::DIED };
                self.broke(&question.to_string(), broken);
                Answer::refused(code)
            }
        }
    }

    /// Why nothing can be asked now, if so.
    fn refusal(&self) -> Option<Code> {
        match &self.state {
            SessionState::Answering => None,
            SessionState::NoLibrary { .. } => Some(Code::LIBRARY_NOT_FOUND),
            SessionState::InitFailed { code, .. } => Some(*code),
            SessionState::Hung(_) | SessionState::Died { .. } => Some(Code::WEDGED),
            SessionState::Refused { .. } | SessionState::NotStarted => Some(Code::UNINITIALIZED),
        }
    }

    fn next<A: serde::de::DeserializeOwned>(&mut self, deadline: Instant) -> Result<A, Broken> {
        let ended = || Broken::Died { how: "had ended before".to_owned() };
        let line = self.child.as_mut().ok_or_else(ended)?.next_line(deadline)?;
        parsed(&line)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Found { library, cuda_library, cuda_objection } => {
                self.library = library;
                self.cuda_library = cuda_library;
                self.cuda_objection = cuda_objection;
            }
            Event::Opened { state, simulated } => {
                self.state = state;
                let digest = self.library.as_ref().map(|library| library.digest);
                // The recorded host's CUDA library is the same file, and is not opened here.
                let same = self.cuda_library.iter_mut().filter(|cuda| Some(cuda.digest) == digest);
                self.library.iter_mut().chain(same).for_each(|library| library.simulated = simulated);
            }
        }
    }

    fn broke(&mut self, question: &str, broken: Broken) {
        let question = question.to_owned();
        self.state = match broken {
            Broken::Hung(wedge) => SessionState::Hung(Wedge { question, ..wedge }),
            Broken::Died { how } => SessionState::Died { question, how },
            Broken::Garbled { detail } => SessionState::Died { question, how: format!("gave garbage: {detail}") },
            Broken::Start(error) => SessionState::Died { question, how: format!("could not be started: {error}") },
        };
        // Dropped, it is killed; a hung one has been ended or abandoned already.
        self.child = None;
    }
}
