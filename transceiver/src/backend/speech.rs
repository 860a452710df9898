//! Keeps account of the model's speech: which audio belongs to which item and response, and what has become of it.
//!
//! A *piece* is the audio of one content part of one item: what `conversation.item.truncate` names, and what the playout's ledger counts.
//! A response has any number of them. The client is told of responses, the server of pieces. What a server calls either counts for as long as
//! its connection: some servers begin to count anew with each.

use std::collections::VecDeque;

use crate::audio::{ItemId, MAX_ITEMS, PlayoutEvent};

/// How many responses are known; the oldest makes room. Each has a piece at least, or else nobody asks for it.
const MAX_RESPONSES: usize = MAX_ITEMS;

/// What follows from what became of audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// The first audio of this response is being sent.
    Started(Option<String>),
    /// All audio of this response has been sent, and no more will come.
    Stopped(Option<String>),
    /// Of this piece not all was sent.
    Truncate(Truncation),
}

/// How much was sent of a piece that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Truncation {
    pub(super) item: String,
    pub(super) part: u64,
    pub(super) sent_ms: u64,
}

/// The model's speech in one session.
#[derive(Debug, Default)]
pub(super) struct Speech {
    pieces: VecDeque<Piece>,
    responses: VecDeque<Response>,
    /// The responses that have been announced and have not ended, the newest last. Not every server names one with its audio.
    announced: VecDeque<String>,
    /// How many servers are gone.
    epoch: u64,
    made: u64,
}

/// What a server calls a response, and which server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Name {
    epoch: u64,
    id: Option<String>,
}

#[derive(Debug)]
struct Piece {
    id: ItemId,
    item: String,
    part: u64,
    response: Name,
    fate: Fate,
    /// The playout knows of it.
    given: bool,
    /// All of its audio has come.
    complete: bool,
}

/// What there is to do when the server is gone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gone {
    /// Pieces to be finished: no more of them will come, and what has come is still played.
    pub(super) finished: Vec<ItemId>,
    /// What follows for responses of which everything has been played.
    pub(super) effects: Vec<Effect>,
    /// Responses that were announced, and whose end nobody will tell.
    pub(super) open: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is to be played.
    Live,
    /// It was played to its end.
    Played,
    /// It was cut off: what still comes is thrown away.
    Cut,
}

#[derive(Debug)]
struct Response {
    name: Name,
    started: bool,
    /// No more audio will come.
    done: bool,
    /// It was cut off.
    cut: bool,
}

impl Speech {
    /// A response has begun: until it ends, it is the one of audio that names none.
    pub(super) fn response_created(&mut self, response: Option<&str>) {
        // What names no response is of another one from here on.
        let name = self.name(None);
        if let Some(unnamed) = self.responses.iter_mut().find(|r| r.name == name) {
            unnamed.done = true;
        }
        if self.announced.len() >= MAX_RESPONSES {
            self.announced.pop_front();
        }
        self.announced.extend(response.map(str::to_owned));
    }

    /// Audio of this part came: the name under which it is to be played.
    ///
    /// # Errors
    /// It is not to be played, since it was cut off, or its response was. The server is to be told that once.
    pub(super) fn audio(
        &mut self,
        response: Option<&str>,
        item: &str,
        part: u64,
    ) -> Result<ItemId, Option<Truncation>> {
        if let Some(piece) = self.find(item, part) {
            // Audio after the end that the server itself has told is none of ours.
            let plays = piece.fate == Fate::Live && !piece.complete;
            return if plays { Ok(piece.id) } else { Err(None) };
        }
        let response = response.or(self.announced.back().map(String::as_str));
        let name = self.name(response);
        let response = self.response(&name);
        // A response without an id cannot be told from the one before; a new item of it is a new beginning.
        if name.id.is_none() && response.done {
            (response.started, response.done, response.cut) = (false, false, false);
        }
        let fate = if response.cut { Fate::Cut } else { Fate::Live };
        if self.pieces.len() >= MAX_ITEMS {
            let over = self.pieces.iter().position(|p| p.fate != Fate::Live);
            self.pieces.remove(over.unwrap_or(0));
        }
        self.made += 1;
        let id = ItemId(self.made);
        self.pieces.push_back(Piece {
            id,
            item: item.to_owned(),
            part,
            response: name,
            fate,
            given: false,
            complete: false,
        });
        if fate == Fate::Live {
            return Ok(id);
        }
        Err(Some(Truncation {
            item: item.to_owned(),
            part,
            sent_ms: 0,
        }))
    }

    /// Whether the playout knows of this piece, so that it will tell what becomes of it.
    pub(super) fn is_given(&self, id: ItemId) -> bool {
        self.pieces.iter().any(|p| p.id == id && p.given)
    }

    /// Audio of this piece is given to the playout, which will tell what becomes of it. Returns whether it is the first.
    pub(super) fn give(&mut self, id: ItemId) -> bool {
        let piece = self.pieces.iter_mut().rev().find(|p| p.id == id);
        piece.is_some_and(|piece| !std::mem::replace(&mut piece.given, true))
    }

    /// All audio of this part has come: the name of the piece that is to be finished.
    pub(super) fn complete(&mut self, item: &str, part: u64) -> Option<ItemId> {
        let piece = self.find(item, part)?;
        let ends = piece.fate == Fate::Live && !piece.complete;
        piece.complete = true;
        ends.then_some(piece.id)
    }

    /// This response has ended: pieces to be finished because the server did not say so of each, and what follows.
    pub(super) fn response_done(
        &mut self,
        response: Option<&str>,
    ) -> (Vec<ItemId>, Option<Effect>) {
        let ended = response.map(str::to_owned);
        let ended = ended.or_else(|| self.announced.pop_back());
        self.announced.retain(|id| Some(id) != ended.as_ref());
        // The end names a response of which nothing came: then it is that of the audio which named none.
        let mut name = self.name(ended.as_deref());
        if !self.responses.iter().any(|r| r.name == name) {
            name.id = None;
        }
        let mut finished = Vec::new();
        for piece in &mut self.pieces {
            if piece.response == name && piece.fate == Fate::Live && !piece.complete {
                piece.complete = true;
                finished.push(piece.id);
            }
        }
        if let Some(known) = self.responses.iter_mut().find(|r| r.name == name) {
            known.done = true;
        }
        (finished, self.stopped(&name))
    }

    /// Something became of a piece.
    pub(super) fn played(&mut self, event: PlayoutEvent) -> Option<Effect> {
        let (PlayoutEvent::Started(id)
        | PlayoutEvent::Finished(id)
        | PlayoutEvent::Cleared { item: id, .. }) = event;
        let piece = self.pieces.iter_mut().find(|p| p.id == id)?;
        match event {
            PlayoutEvent::Started(_) => {
                let response = piece.response.clone();
                let known = self.responses.iter_mut().find(|r| r.name == response)?;
                let first = !known.started;
                known.started = true;
                first.then_some(Effect::Started(response.id))
            }
            PlayoutEvent::Finished(_) => {
                if piece.fate == Fate::Live {
                    piece.fate = Fate::Played;
                }
                let response = piece.response.clone();
                self.stopped(&response)
            }
            PlayoutEvent::Cleared { sent_ms, .. } => {
                piece.fate = Fate::Cut;
                // Of a server that is gone nobody is left to be told.
                (piece.response.epoch == self.epoch).then(|| {
                    Effect::Truncate(Truncation {
                        item: piece.item.clone(),
                        part: piece.part,
                        sent_ms,
                    })
                })
            }
        }
    }

    /// Everything that has not been played is cut off: the responses that this hits, the oldest first.
    ///
    /// What was sent of each piece comes by [`Speech::played`], once the playout has been cleared.
    pub(super) fn cut(&mut self) -> Vec<Option<String>> {
        let mut hit = Vec::new();
        for piece in &mut self.pieces {
            if piece.fate == Fate::Live {
                piece.fate = Fate::Cut;
                if !hit.contains(&piece.response) {
                    hit.push(piece.response.clone());
                }
            }
        }
        for response in &mut self.responses {
            // Between two items of a response nothing is live, and yet there is more to come.
            let speaking = response.started && !response.done && !response.cut;
            if speaking && !hit.contains(&response.name) {
                hit.push(response.name.clone());
            }
            response.cut |= hit.contains(&response.name);
        }
        hit.into_iter().map(|name| name.id).collect()
    }

    /// What has been announced, and of which nothing has come yet, is not to be played either: it answers what the user has not finished.
    pub(super) fn cut_announced(&mut self) {
        for id in self.announced.clone() {
            let name = self.name(Some(&id));
            if !self.responses.iter().any(|r| r.name == name) {
                self.response(&name).cut = true;
            }
        }
    }

    /// The server is gone.
    pub(super) fn server_gone(&mut self) -> Gone {
        let mut gone = Gone {
            open: std::mem::take(&mut self.announced).into(),
            ..Gone::default()
        };
        for piece in &mut self.pieces {
            if piece.fate == Fate::Live && !piece.complete {
                piece.complete = true;
                gone.finished.push(piece.id);
            }
        }
        let mut names = Vec::new();
        for response in &mut self.responses {
            response.done = true;
            names.push(response.name.clone());
        }
        gone.effects = names.iter().filter_map(|name| self.stopped(name)).collect();
        self.epoch += 1;
        gone
    }

    /// Whether everything that came has been played or cut off.
    pub(super) fn is_over(&self) -> bool {
        self.pieces.iter().all(|p| p.fate != Fate::Live)
    }

    /// Whether this response has been played whole; told once.
    fn stopped(&mut self, response: &Name) -> Option<Effect> {
        let of_it = |p: &Piece| p.response == *response;
        if self.pieces.iter().any(|p| of_it(p) && p.fate == Fate::Live) {
            return None;
        }
        let at = self
            .responses
            .iter()
            .position(|r| r.name == *response && r.done)?;
        let over = &self.responses[at];
        let told = (over.started && !over.cut).then(|| Effect::Stopped(over.name.id.clone()));
        if told.is_some() {
            self.responses.remove(at);
        }
        told
    }

    fn name(&self, response: Option<&str>) -> Name {
        Name {
            epoch: self.epoch,
            id: response.map(str::to_owned),
        }
    }

    /// What is known of this response, from here on if nothing was.
    fn response(&mut self, name: &Name) -> &mut Response {
        let known = self.responses.iter().position(|r| r.name == *name);
        let at = known.unwrap_or_else(|| {
            if self.responses.len() >= MAX_RESPONSES {
                self.responses.pop_front();
            }
            self.responses.push_back(Response {
                name: name.clone(),
                started: false,
                done: false,
                cut: false,
            });
            self.responses.len() - 1
        });
        &mut self.responses[at]
    }

    // Pieces in use are young.
    fn find(&mut self, item: &str, part: u64) -> Option<&mut Piece> {
        let epoch = self.epoch;
        self.pieces
            .iter_mut()
            .rev()
            .find(|p| p.part == part && p.item == item && p.response.epoch == epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: Option<&str> = Some("r1");

    fn owned(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    /// Nothing of this item was heard.
    fn unheard(item: &str) -> Option<Truncation> {
        Some(Truncation {
            item: item.to_owned(),
            part: 0,
            sent_ms: 0,
        })
    }

    #[test]
    fn a_response_starts_once_and_stops_when_its_last_piece_is_played() {
        let mut speech = Speech::default();
        let first = speech.audio(R, "a", 0).expect("live");
        let second = speech.audio(R, "b", 0).expect("live");
        assert_eq!(
            speech.played(PlayoutEvent::Started(first)),
            Some(Effect::Started(owned("r1")))
        );
        assert_eq!(speech.complete("a", 0), Some(first));
        assert_eq!(speech.played(PlayoutEvent::Finished(first)), None);
        assert_eq!(speech.played(PlayoutEvent::Started(second)), None);
        assert_eq!(speech.response_done(R), (vec![second], None));
        assert_eq!(
            speech.played(PlayoutEvent::Finished(second)),
            Some(Effect::Stopped(owned("r1")))
        );
        assert!(speech.is_over());
    }

    #[test]
    fn a_response_that_was_played_before_its_end_is_known_stops_with_it() {
        let mut speech = Speech::default();
        let piece = speech.audio(R, "a", 0).expect("live");
        speech.played(PlayoutEvent::Started(piece));
        speech.complete("a", 0);
        assert_eq!(speech.played(PlayoutEvent::Finished(piece)), None);
        assert_eq!(
            speech.response_done(R),
            (vec![], Some(Effect::Stopped(owned("r1"))))
        );
        assert_eq!(speech.response_done(R), (vec![], None), "told once");
    }

    #[test]
    fn what_was_cut_takes_no_more_audio_and_what_was_played_is_not_cut() {
        let mut speech = Speech::default();
        let played = speech.audio(R, "a", 0).expect("live");
        speech.played(PlayoutEvent::Started(played));
        speech.complete("a", 0);
        speech.response_done(R);
        speech.played(PlayoutEvent::Finished(played));
        assert!(speech.cut().is_empty(), "nothing is left to cut");
        let cut = speech.audio(Some("r2"), "b", 0).expect("live");
        assert_eq!(speech.cut(), [owned("r2")]);
        assert!(speech.cut().is_empty(), "cut once");
        assert_eq!(
            speech.played(PlayoutEvent::Cleared {
                item: cut,
                sent_ms: 40
            }),
            Some(Effect::Truncate(Truncation {
                item: "b".into(),
                part: 0,
                sent_ms: 40
            }))
        );
        assert_eq!(speech.audio(Some("r2"), "b", 0), Err(None));
        assert_eq!(
            speech.audio(Some("r2"), "c", 0),
            Err(unheard("c")),
            "nor does its response"
        );
        assert_eq!(speech.audio(Some("r2"), "c", 0), Err(None), "told once");
        assert!(speech.audio(Some("r3"), "d", 0).is_ok());
    }

    #[test]
    fn a_server_that_is_gone_is_told_nothing() {
        let mut speech = Speech::default();
        let piece = speech.audio(R, "a", 0).expect("live");
        assert_eq!(speech.server_gone().finished, [piece]);
        speech.cut();
        assert_eq!(
            speech.played(PlayoutEvent::Cleared {
                item: piece,
                sent_ms: 40
            }),
            None
        );
    }

    #[test]
    fn what_a_server_is_silent_about_when_it_goes_is_told_in_its_place() {
        let mut speech = Speech::default();
        speech.response_created(R);
        let piece = speech.audio(R, "a", 0).expect("live");
        speech.played(PlayoutEvent::Started(piece));
        speech.complete("a", 0);
        assert_eq!(speech.played(PlayoutEvent::Finished(piece)), None);
        let gone = Gone {
            finished: vec![],
            effects: vec![Effect::Stopped(owned("r1"))],
            open: vec!["r1".to_owned()],
        };
        assert_eq!(speech.server_gone(), gone);
        assert_eq!(speech.server_gone(), Gone::default(), "told once");
    }

    #[test]
    fn another_server_may_use_the_same_names() {
        let mut speech = Speech::default();
        // One that is played to its end, one that is cut, and one that is still being played.
        let played = speech.audio(R, "a", 0).expect("live");
        speech.played(PlayoutEvent::Started(played));
        speech.played(PlayoutEvent::Finished(played));
        assert!(speech.audio(Some("r2"), "b", 0).is_ok());
        speech.cut();
        let playing = speech.audio(Some("r3"), "c", 0).expect("live");
        speech.played(PlayoutEvent::Started(playing));
        assert_eq!(speech.server_gone().finished, [playing]);
        for (response, item) in [("r1", "a"), ("r2", "b"), ("r3", "c")] {
            speech.response_created(Some(response));
            let again = speech.audio(Some(response), item, 0).expect("live");
            let started = speech.played(PlayoutEvent::Started(again));
            assert_eq!(started, Some(Effect::Started(owned(response))));
            assert_eq!(speech.response_done(Some(response)).0, [again]);
            let stopped = speech.played(PlayoutEvent::Finished(again));
            assert_eq!(stopped, Some(Effect::Stopped(owned(response))));
        }
        let stopped = speech.played(PlayoutEvent::Finished(playing));
        assert_eq!(stopped, Some(Effect::Stopped(owned("r3"))));
    }

    #[test]
    fn a_response_that_was_announced_and_made_no_sound_can_be_cut() {
        let mut speech = Speech::default();
        speech.response_created(R);
        assert!(speech.cut().is_empty(), "nothing is being said");
        speech.cut_announced();
        assert_eq!(speech.audio(R, "a", 0), Err(unheard("a")));
        assert_eq!(speech.audio(None, "b", 0), Err(unheard("b")));
        assert_eq!(speech.audio(R, "a", 0), Err(None), "told once");
        assert_eq!(speech.response_done(R), (vec![], None));
        speech.response_created(Some("r2"));
        assert!(speech.audio(Some("r2"), "c", 0).is_ok());
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut speech = Speech::default();
        for n in 0..1_000 {
            let response = format!("r{n}");
            speech.response_created(Some(&response));
            assert!(speech.audio(Some(&response), "a", n).is_ok());
        }
        assert!(speech.pieces.len() <= MAX_ITEMS && speech.responses.len() <= MAX_RESPONSES);
        assert!(speech.announced.len() <= MAX_RESPONSES);
    }

    #[test]
    fn audio_that_names_no_response_is_of_the_one_that_was_announced() {
        let mut speech = Speech::default();
        for (response, item) in [("r1", "a"), ("r2", "b")] {
            let id = owned(response);
            speech.response_created(Some(response));
            let piece = speech.audio(None, item, 0).expect("live");
            let started = speech.played(PlayoutEvent::Started(piece));
            assert_eq!(started, Some(Effect::Started(id.clone())));
            let done = speech.response_done(Some(response));
            assert_eq!(done, (vec![piece], None));
            let stopped = speech.played(PlayoutEvent::Finished(piece));
            assert_eq!(stopped, Some(Effect::Stopped(id)));
            assert!(speech.cut().is_empty(), "nothing is being said");
        }
        // One that is made beside it, and ends before it, changes nothing.
        speech.response_created(Some("r3"));
        speech.response_created(Some("aside"));
        speech.response_done(Some("aside"));
        assert!(speech.audio(None, "c", 0).is_ok());
        assert_eq!(speech.cut(), [owned("r3")]);
        assert_eq!(
            speech.audio(None, "d", 0),
            Err(unheard("d")),
            "its response was cut"
        );
        speech.response_created(Some("r4"));
        assert!(speech.audio(None, "e", 0).is_ok());
        assert_eq!(speech.response_done(None).0.len(), 1);
    }

    #[test]
    fn audio_that_names_no_response_ends_with_the_next_one_that_does() {
        let mut speech = Speech::default();
        for (response, item) in [("r1", "a"), ("r2", "b"), ("r3", "c")] {
            let piece = speech.audio(None, item, 0).expect("live");
            let started = speech.played(PlayoutEvent::Started(piece));
            assert_eq!(started, Some(Effect::Started(None)));
            if response == "r2" {
                assert_eq!(speech.cut(), [None]);
                assert_eq!(speech.audio(None, "more", 0), Err(unheard("more")));
            }
            let (finished, _) = speech.response_done(Some(response));
            let stopped = speech.played(PlayoutEvent::Finished(piece));
            if response == "r2" {
                assert_eq!((finished, stopped), (vec![], None));
            } else {
                assert_eq!(
                    (finished, stopped),
                    (vec![piece], Some(Effect::Stopped(None)))
                );
            }
            assert!(speech.cut().is_empty(), "nothing is being said");
        }
        // Neither does one that was cut and has no end stand in the way of the next.
        assert!(speech.audio(None, "d", 0).is_ok());
        assert_eq!(speech.cut(), [None]);
        speech.response_created(None);
        assert!(speech.audio(None, "e", 0).is_ok());
    }
}
