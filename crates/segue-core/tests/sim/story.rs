//! Drives a run through a world in simulated time, and records all events and answers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::{
    Answer, Call, CallId, Effect, Entry, Event, EventKind, Failure, NodeId, Question, QuestionId,
    Run, Started, StepSelection, TimerId, Turn,
};
use segue_core::value::Value;
use segue_core::view::RunView;

use crate::dice::digest;
use crate::ledger::Ledger;
use crate::world::{Fate, Surroundings, World};

/// Turns after which a run that has not ended is taken for one that never ends.
const TURNS_MAX: usize = 20_000;

/// An event for a run; can be sent again.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    Start(Box<Started>, StepSelection),
    Answered(CallId, Answer),
    /// A call has a resume handle.
    Followed(CallId, Value),
    /// A question was answered, with its data.
    Decided(NodeId, bool, Value, u64),
    Expanded(NodeId, Result<Arc<Plan>, Failure>),
    Fired(TimerId),
    Cancel,
    /// The engine stopped, and another one continues from the journal.
    Resumed,
    /// The same, with a request to end the run.
    ResumedToEnd,
}

impl Word {
    pub(crate) fn event(&self, at_ms: u64, entropy: u64) -> Event {
        let kind = match self.clone() {
            Word::Start(started, selection) => EventKind::StartPart { started, selection },
            Word::Answered(call, answer) => EventKind::Answered { call, answer },
            Word::Followed(call, handle) => EventKind::HandleReceived { call, handle },
            Word::Decided(node, granted, data, seq) => {
                let question = QuestionId { node, seq };
                EventKind::Decided { question, granted, by: World::somebody(), data }
            }
            Word::Expanded(node, outcome) => EventKind::Expanded { node, outcome },
            Word::Fired(timer) => EventKind::TimerFired(timer),
            Word::Cancel => EventKind::Cancel { by: World::somebody() },
            Word::Resumed => EventKind::Resumed,
            Word::ResumedToEnd => {
                EventKind::ResumedToEnd { by: World::somebody(), roll_back: false }
            }
        };
        Event { at_ms, entropy, kind }
    }

    /// Whether another engine takes over.
    pub(crate) fn resumes(&self) -> bool {
        matches!(self, Word::Resumed | Word::ResumedToEnd)
    }

    /// Whether it requests the end of the run.
    pub(crate) fn cancels(&self) -> bool {
        matches!(self, Word::Cancel | Word::ResumedToEnd)
    }
}

/// One turn: the event, and its result.
pub(crate) struct Told {
    /// Simulated time.
    pub(crate) now: u64,
    /// Wall-clock time.
    pub(crate) wall: u64,
    pub(crate) entropy: u64,
    pub(crate) word: Word,
    /// Its entries: from this one up to before that one.
    pub(crate) entries: std::ops::Range<usize>,
    pub(crate) perform: Vec<Effect>,
    /// Whether the run had ended before.
    pub(crate) after_the_end: bool,
}

/// A run from its first event to the last.
pub(crate) struct Story {
    pub(crate) plan: Arc<Plan>,
    pub(crate) started: Started,
    pub(crate) journal: Vec<Entry>,
    pub(crate) turns: Vec<Told>,
    pub(crate) view: RunView,
    /// The view at the turn that ended the run, when it ended.
    pub(crate) end: Option<RunView>,
    /// Whether it waits for an answer that never comes.
    pub(crate) waits: bool,
    /// The effects in the world.
    pub(crate) ledger: Ledger,
}

impl Story {
    /// The turn that wrote an entry.
    pub(crate) fn turn_of(&self, seq: u64) -> usize {
        let seq = usize::try_from(seq).unwrap();
        self.turns.partition_point(|turn| turn.entries.end <= seq)
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = (usize, &Call)> {
        self.turns.iter().enumerate().flat_map(|(at, turn)| {
            turn.perform.iter().filter_map(move |effect| match effect {
                Effect::Call(call) => Some((at, call)),
                _ => None,
            })
        })
    }

    /// Whether two stories are the same to the byte.
    pub(crate) fn is_same(&self, other: &Story) -> bool {
        let words = |story: &Story| {
            let turns = story.turns.iter();
            let told = turns.map(|turn| digest(&(turn.now, &turn.word, &turn.perform)));
            told.collect::<Vec<_>>()
        };
        digest(&self.journal) == digest(&other.journal) && words(self) == words(other)
    }

    /// The whole story as text, for people.
    pub(crate) fn text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for turn in &self.turns {
            let _ = writeln!(text, "{} {:?} → {:?}", turn.now, turn.word, turn.perform);
            for entry in &self.journal[turn.entries.clone()] {
                let _ = writeln!(text, "  {entry:?}");
            }
        }
        text
    }
}

/// Events still to come: by time, then in the order in which they were queued.
type Queue = BinaryHeap<Reverse<(u64, u64)>>;

pub(crate) struct Stage<'a> {
    plan: &'a Arc<Plan>,
    world: &'a dyn Surroundings,
    limits: Arc<Limits>,
    run: Run,
    queue: Queue,
    words: BTreeMap<u64, (u64, Word)>,
    order: u64,
    /// Answers that are on their way, by call.
    answers: BTreeMap<CallId, Vec<u64>>,
    /// The fates of the calls that were made.
    fates: BTreeMap<CallId, Fate>,
    /// How often each step asked.
    asked: BTreeMap<NodeId, u32>,
    /// Turns after which the engine stops.
    crashes: BTreeSet<usize>,
    story: Story,
}

/// Plays a plan in a world to the last event.
pub(crate) fn play(plan: &Arc<Plan>, world: &dyn Surroundings) -> Story {
    play_with_crashes(plan, world, BTreeSet::new())
}

/// The same, while the engine stops after some turns and another one takes over.
pub(crate) fn play_with_crashes(
    plan: &Arc<Plan>,
    world: &dyn Surroundings,
    crashes: BTreeSet<usize>,
) -> Story {
    play_part(plan, world, StepSelection::default(), crashes)
}

/// The same for a run that performs a part of its composition.
pub(crate) fn play_part(
    plan: &Arc<Plan>,
    world: &dyn Surroundings,
    selection: StepSelection,
    crashes: BTreeSet<usize>,
) -> Story {
    let mut stage = Stage::new(plan, world, selection, crashes);
    while stage.step() {}
    stage.finish()
}

impl<'a> Stage<'a> {
    fn new(
        plan: &'a Arc<Plan>,
        world: &'a dyn Surroundings,
        selection: StepSelection,
        crashes: BTreeSet<usize>,
    ) -> Stage<'a> {
        let limits = Arc::new(Limits::default());
        let started = world.started();
        let mut stage = Stage {
            plan,
            world,
            run: Run::new(plan.clone(), limits.clone()),
            limits,
            queue: Queue::new(),
            words: BTreeMap::new(),
            order: 0,
            answers: BTreeMap::new(),
            fates: BTreeMap::new(),
            asked: BTreeMap::new(),
            crashes,
            story: Story {
                plan: plan.clone(),
                started: started.clone(),
                journal: Vec::new(),
                turns: Vec::new(),
                view: RunView::default(),
                end: None,
                waits: false,
                ledger: Ledger::new(world.keeps_ledger()),
            },
        };
        stage.tell(0, Word::Start(Box::new(started), selection));
        for at in world.cancels() {
            stage.tell(*at, Word::Cancel);
        }
        stage
    }

    fn tell(&mut self, at: u64, word: Word) -> u64 {
        self.order += 1;
        self.queue.push(Reverse((at, self.order)));
        self.words.insert(self.order, (at, word));
        self.order
    }

    /// One turn; false when nothing is left to tell.
    fn step(&mut self) -> bool {
        let (now, word) = loop {
            let Some(Reverse((now, order))) = self.queue.pop() else { return false };
            // What was called off is no longer told.
            if let Some((_, word)) = self.words.remove(&order) {
                break (now, word);
            }
        };
        let at = self.story.turns.len();
        if at >= TURNS_MAX {
            return false;
        }
        let (wall, entropy) = (self.world.wall(now, at), self.world.entropy(at));
        let after_the_end = self.run.is_finished();
        let turn = self.run.handle(word.event(wall, entropy));
        self.story.ledger.disown(&word, &turn.record);
        self.perform(now, wall, &turn);
        let from = self.story.journal.len();
        self.story.journal.extend(turn.record);
        let entries = from..self.story.journal.len();
        let perform = turn.perform;
        self.story.turns.push(Told { now, wall, entropy, word, entries, perform, after_the_end });
        if !after_the_end && self.run.is_finished() {
            self.story.end = Some(self.run.view());
        }
        if self.crashes.contains(&at) && !self.run.is_finished() {
            self.crash(now);
        }
        true
    }

    /// The engine stops: running calls are lost, and the journal is read again.
    fn crash(&mut self, now: u64) {
        let words = std::mem::take(&mut self.words);
        let journal = &self.story.journal;
        self.run = Run::replay(self.plan.clone(), self.limits.clone(), journal)
            .expect("what a run has written can be read");
        let turn = self.story.turns.len();
        let back = now + self.world.pause(turn);
        // Requests of people survive a crash: the next engine handles them.
        let wanted = words.into_values().filter(|(_, word)| matches!(word, Word::Cancel));
        let mut wanted: Vec<u64> = wanted.map(|(at, _)| at).collect();
        let is_due = wanted.first().is_some_and(|at| *at <= back);
        if is_due && self.world.entropy(turn).is_multiple_of(2) {
            wanted.remove(0);
            self.tell(back, Word::ResumedToEnd);
        } else {
            self.tell(back, Word::Resumed);
        }
        for at in wanted {
            self.tell(at.max(back), Word::Cancel);
        }
    }

    fn perform(&mut self, now: u64, wall: u64, turn: &Turn) {
        for effect in &turn.perform {
            match effect {
                Effect::Call(call) => self.call(now, call),
                Effect::Settle(call) => self.settle(now, *call),
                Effect::Abort(call) => self.end(now, *call),
                Effect::Ask(question) => self.ask(now, question),
                Effect::Expand { node, document } => {
                    let outcome = self.world.expand(document);
                    let wait = self.world.entropy(self.story.turns.len()) % 5;
                    self.tell(now + wait, Word::Expanded(*node, outcome));
                }
                Effect::SetTimer { timer, at_ms } => {
                    // How long, not when: the clock on the wall may have jumped by then.
                    let wait = at_ms.saturating_sub(wall);
                    self.tell(now + wait, Word::Fired(*timer));
                }
            }
        }
    }

    fn ask(&mut self, now: u64, question: &Question) {
        let QuestionId { node, seq } = question.id;
        let asked = self.asked.entry(node).or_default();
        *asked += 1;
        let done_in = self.story.ledger.done_in(node, now);
        let Some(reply) = self.world.reply(question, *asked, done_in) else { return };
        // Answers to earlier questions of the step are obsolete.
        self.words.retain(|_, (_, word)| !matches!(word, Word::Decided(at, ..) if *at == node));
        if let Some(after) = reply.contradicted {
            let word = Word::Decided(node, !reply.granted, reply.data.clone(), seq);
            self.tell(now + after + 1, word);
        }
        self.tell(now + reply.latency, Word::Decided(node, reply.granted, reply.data, seq));
    }

    fn call(&mut self, now: u64, call: &Call) {
        let done_in = self.story.ledger.done_in(call.id.node, now);
        let mut fate = self.world.fate(call, done_in);
        fate.deadline = call.timeout_ms.map(|timeout| now + timeout);
        if let Some(after) = fate.lands {
            self.story.ledger.expect(call, now + after);
        }
        let mut answers = Vec::new();
        let in_time = call.timeout_ms.is_none_or(|timeout| fate.latency <= timeout);
        if let (false, Some(timeout)) = (in_time, call.timeout_ms) {
            answers.push(self.tell(now + timeout, Word::Answered(call.id, Answer::TimedOut)));
        }
        if in_time || fate.late {
            let word = Word::Answered(call.id, fate.answer.clone());
            answers.push(self.tell(now + fate.latency, word));
        }
        if let Some((after, handle)) = fate.handle.clone().filter(|_| call.resume_handle.is_none())
        {
            self.tell(now + after, Word::Followed(call.id, handle));
        }
        if let Some(after) = fate.again {
            let word = Word::Answered(call.id, fate.answer.clone());
            answers.push(self.tell(now + after.max(fate.latency), word));
        }
        self.answers.insert(call.id, answers);
        self.fates.insert(call.id, fate);
    }

    /// A call that may write is asked to settle: an unsent one is not sent, some fall silent, and
    /// the others continue to their answer.
    fn settle(&mut self, now: u64, call: CallId) {
        let Some(fate) = self.fates.get_mut(&call) else { return };
        let is_unsent = fate.ends == Some(0) && !self.story.ledger.has_landed(call, now);
        if is_unsent {
            self.story.ledger.stop(call, now);
            self.call_off(call);
            self.tell(now, Word::Answered(call, Answer::Unsent));
        } else if fate.is_silent {
            fate.ends = Some(1);
            let deadline = fate.deadline;
            self.call_off(call);
            if let Some(deadline) = deadline {
                self.tell(deadline.max(now), Word::Answered(call, Answer::TimedOut));
            }
        }
    }

    /// A call is aborted: most end soon, some answer first, and some were not sent yet.
    fn end(&mut self, now: u64, call: CallId) {
        let Some(Fate { ends: Some(after), is_stopped, .. }) = self.fates.get(&call).cloned()
        else {
            return;
        };
        self.call_off(call);
        let is_unsent = after == 0 && !self.story.ledger.has_landed(call, now);
        if is_unsent || is_stopped {
            self.story.ledger.stop(call, now);
        }
        let answer = if is_unsent { Answer::Unsent } else { Answer::Aborted };
        self.tell(now + after, Word::Answered(call, answer));
    }

    /// Drops the events that a call would still send.
    fn call_off(&mut self, call: CallId) {
        for order in self.answers.remove(&call).unwrap_or_default() {
            self.words.remove(&order);
        }
    }

    fn finish(mut self) -> Story {
        self.story.view = self.run.view();
        self.story.waits = self.run.is_waiting();
        self.story
    }
}

/// J3, completely: a journal that is cut here restores the run, which continues as it did.
pub(crate) fn replayed(story: &Story, turns: usize) -> (Run, Option<Turn>) {
    let mut run = read_back(story, turns);
    let next = story.turns.get(turns);
    let turn = next.map(|next| run.handle(next.word.event(next.wall, next.entropy)));
    (run, turn)
}

/// The run restored from the journal up to a turn.
pub(crate) fn read_back(story: &Story, turns: usize) -> Run {
    let end = story.turns[..turns].last().map_or(0, |turn| turn.entries.end);
    Run::replay(story.plan.clone(), Arc::new(Limits::default()), &story.journal[..end])
        .expect("what a run has written can be read")
}
