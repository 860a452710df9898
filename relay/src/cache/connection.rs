//! The thread that speaks with Redis: one multiplexed connection, pipelines, reconnection with backoff.
//!
//! Questions and changes go in batches. Many batches of questions may be under way at once, one batch of changes: so the
//! changes of one flow reach Redis in the order in which they came. Redis is *out of reach* from the first command that fails on
//! its way or has no answer in time (in a silence, that is a PING), until a new connection has answered one. Meanwhile what lies in the queues is dropped and counted, nothing is sent but attempts to connect, and the log has one line.
//!
//! Relays of one site share the entries, and a client may have moved from one to another. So a new proof writes its entry, whatever
//! was there; that a flow is alive, or closed, is told to the entry of its own session alone. Redis decides that, in one step.

use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use firsthop_relay_core::cache::{FORMAT, VALUE_MAX};
use firsthop_relay_core::{Change, ChangeKind, Found};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisError, RedisResult, Value};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use super::reply::Refused;
use super::words::shown;
use super::{Question, Shared, Target, Totals};
use crate::limits::{
    CACHE_BACKOFF, CACHE_BATCH, CACHE_CONNECT, CACHE_ENTRY, CACHE_PING, CACHE_QUESTION_BATCHES,
    CACHE_REFUSAL_OVER, CACHE_RESPONSE, CACHE_STEADY,
};

/// `KEYS[1]`: a flow's key. `ARGV`: what names its session in a value, the rest of the value, seconds. Lets the entry live on,
/// unless it is another session's. What is no entry at all gives way, of whatever type it is.
const ALIVE: &str = "local v = redis.pcall('GET', KEYS[1]) \
    if type(v) == 'string' and string.sub(v, 1, 2) == '1 ' and string.sub(v, 1, #ARGV[1]) ~= ARGV[1] then return 0 end \
    redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'EX', ARGV[3]) return 1";

/// `KEYS[1]`: a flow's key. `ARGV[1]`: what names its session in a value. Removes the entry, if it is this session's.
const CLOSED: &str = "local v = redis.pcall('GET', KEYS[1]) \
    if type(v) == 'string' and string.sub(v, 1, #ARGV[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end \
    return 0";

// The script above spells the format.
const _: () = assert!(matches!(FORMAT.as_bytes(), b"1 "));

/// The thread's work.
pub(super) struct Connection {
    target: Target,
    shared: Arc<Shared>,
    questions: Receiver<Question>,
    changes: Receiver<Change>,
}

/// A connection that has answered.
struct Link {
    commands: MultiplexedConnection,
    /// What was refused of that which came by it.
    refused: Arc<OnceLock<Refused>>,
    /// What moves commands and replies, until this goes.
    _driver: JoinSet<()>,
}

impl Link {
    /// Why a command has failed: who waits for many replies hears only that no more will come.
    fn cause(&self, error: RedisError) -> RedisError {
        match self.refused.get() {
            Some(refused) => io::Error::from(*refused).into(),
            None => error,
        }
    }
}

/// A batch that has come back from Redis.
enum Done {
    /// Questions were answered, or a PING was: the first refusal to be asked, if any.
    Answered(Option<RedisError>),
    /// Changes were taken, all but those that were refused: the first refusal, if any.
    Written(Option<RedisError>),
}

impl Connection {
    pub(super) fn new(
        target: Target,
        shared: Arc<Shared>,
        questions: Receiver<Question>,
        changes: Receiver<Change>,
    ) -> Self {
        Self {
            target,
            shared,
            questions,
            changes,
        }
    }

    /// Works until it is told to stop.
    ///
    /// # Errors
    /// The runtime could not be made.
    pub(super) fn run(self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        block_on(async {
            tokio::select! {
                () = shared.stop.notified() => {}
                () = self.keep() => {}
            }
        })
    }

    /// Connects, serves, and begins anew.
    async fn keep(&self) {
        let mut outage: Option<Instant> = None;
        let mut backoff = CACHE_BACKOFF.start;
        loop {
            let connecting = self.connect();
            let connected = match outage {
                // What comes while a relay starts is worth to wait for the first connection.
                None => connecting.await,
                Some(_) => self.without_redis(connecting).await,
            };
            let error = match connected {
                Ok(link) => {
                    let since = Instant::now();
                    match outage.take() {
                        None => info!(redis = self.target.place, "the flow cache is up"),
                        Some(since) => info!(
                            redis = self.target.place,
                            seconds = since.elapsed().as_secs(),
                            "the flow cache is up again"
                        ),
                    }
                    self.shared.set_up(true);
                    let error = link.cause(self.serve(&link.commands).await);
                    if since.elapsed() >= CACHE_STEADY {
                        backoff = CACHE_BACKOFF.start;
                    }
                    error
                }
                Err(error) => error,
            };
            self.shared.set_up(false);
            if outage.is_none() {
                warn!(
                    redis = self.target.place,
                    cause = %shown(&error),
                    "the flow cache is out of reach: calls go on, and a relay that loses flows does not find them there"
                );
                outage = Some(Instant::now());
            }
            // All relays of a site lose their Redis at once, and shall not come back in step.
            let pause = backoff.mul_f64(rand::random_range(0.5..=1.0));
            self.without_redis(sleep(pause)).await;
            backoff = (2 * backoff).min(CACHE_BACKOFF.end);
        }
    }

    /// Does something while Redis is out of reach, and drops what comes for it.
    async fn without_redis<T>(&self, something: impl Future<Output = T>) -> T {
        let mut something = std::pin::pin!(something);
        loop {
            self.drop_all();
            tokio::select! {
                done = &mut something => return done,
                () = self.shared.work.notified() => {}
            }
        }
    }

    fn drop_all(&self) {
        // The cores that ask now have not seen yet that it is of no use, and end their waits by themselves.
        while self.questions.try_recv().is_ok() {}
        let dropped = self.changes.try_iter().count();
        Totals::add(&self.shared.totals.unreachable, dropped);
    }

    /// A connection that has answered.
    async fn connect(&self) -> RedisResult<Link> {
        let connecting = async {
            let (stream, refused) = self.target.way.go().await?;
            let config = AsyncConnectionConfig::new().set_response_timeout(Some(CACHE_RESPONSE));
            let login = &self.target.login;
            let (commands, driver) =
                MultiplexedConnection::new_with_config(login, stream, config).await?;
            let mut tasks = JoinSet::new();
            tasks.spawn(driver);
            Ok::<_, RedisError>(Link {
                commands,
                refused,
                _driver: tasks,
            })
        };
        let link = timeout(CACHE_CONNECT, connecting)
            .await
            .unwrap_or_else(|_| Err(too_late()))?;
        match ping(&mut link.commands.clone()).await {
            Ok(()) => Ok(link),
            Err(error) => Err(link.cause(error)),
        }
    }

    /// Carries batches there and back, until one fails on its way.
    async fn serve(&self, commands: &MultiplexedConnection) -> RedisError {
        let mut under_way: JoinSet<RedisResult<Done>> = JoinSet::new();
        // Batches of questions, and changes in the batch of these.
        let (mut asking, mut writing) = (0, 0);
        // When Redis last refused something.
        let (mut reads_refused, mut writes_refused) = (None, None);
        let mut silence = interval(CACHE_PING);
        silence.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while asking < CACHE_QUESTION_BATCHES {
                let batch = next_questions(&self.questions, Instant::now());
                if batch.is_empty() {
                    break;
                }
                asking += 1;
                under_way.spawn(ask(commands.clone(), batch, Arc::clone(&self.shared)));
            }
            if writing == 0 {
                let batch: Vec<_> = self.changes.try_iter().take(CACHE_BATCH).collect();
                if !batch.is_empty() {
                    writing = batch.len();
                    under_way.spawn(write(commands.clone(), batch, Arc::clone(&self.shared)));
                }
            }
            let done = tokio::select! {
                () = self.shared.work.notified() => continue,
                Some(done) = under_way.join_next() => done,
                _ = silence.tick() => {
                    if under_way.is_empty() {
                        asking += 1;
                        let mut commands = commands.clone();
                        under_way.spawn(async move { ping(&mut commands).await.map(|()| Done::Answered(None)) });
                    }
                    continue;
                }
            };
            match done.unwrap_or_else(|error| Err(io::Error::other(error).into())) {
                Ok(Done::Answered(refusal)) => {
                    asking -= 1;
                    self.report("what is asked of it", refusal, &mut reads_refused);
                }
                Ok(Done::Written(refusal)) => {
                    writing = 0;
                    self.report("what is written to it", refusal, &mut writes_refused);
                }
                Err(error) => {
                    Totals::add(&self.shared.totals.unreachable, writing);
                    return error;
                }
            }
        }
    }

    /// One line when Redis begins to refuse something: it is full, a replica, part of a cluster, or does not allow it to this user.
    /// A cluster refuses some keys and takes others, so that it must have refused nothing for a while before another line.
    fn report(&self, what: &str, refusal: Option<RedisError>, last: &mut Option<Instant>) {
        let Some(cause) = refusal else {
            return;
        };
        if last.is_none_or(|last| last.elapsed() >= CACHE_REFUSAL_OVER) {
            let cause = shown(&cause);
            warn!(redis = self.target.place, %cause, "the flow cache refuses {what}");
        }
        *last = Some(Instant::now());
    }
}

/// Runs a future to its end on this thread, and does not wait for what it has left to others: a name server that is silent holds
/// whoever asks it for many seconds.
fn block_on(future: impl Future<Output = ()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(future);
    runtime.shutdown_background();
    Ok(())
}

/// A batch of questions. What has lain here for as long as a packet may wait is left out: Redis would see what all cores asked
/// while it was slow on top of what they ask now, for answers that come too late.
fn next_questions(queue: &Receiver<Question>, now: Instant) -> Vec<Question> {
    queue
        .try_iter()
        .filter(|question| question.is_of_use(now))
        .take(CACHE_BATCH)
        .collect()
}

fn too_late() -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into()
}

async fn ping(commands: &mut MultiplexedConnection) -> RedisResult<()> {
    redis::cmd("PING").exec_async(commands).await
}

/// The answers to a pipeline, one for each command. A command that Redis refuses does not take the others with it.
async fn answers(
    pipeline: &mut Pipeline,
    mut commands: MultiplexedConnection,
) -> RedisResult<Vec<RedisResult<Value>>> {
    pipeline.ignore_errors().query_async(&mut commands).await
}

async fn ask(
    commands: MultiplexedConnection,
    batch: Vec<Question>,
    shared: Arc<Shared>,
) -> RedisResult<Done> {
    let mut pipeline = Pipeline::with_capacity(batch.len());
    for question in &batch {
        // Whatever lies there, however long: no more than an entry, and one byte to see that it is longer.
        pipeline
            .cmd("GETRANGE")
            .arg(question.flow.to_string())
            .arg(0)
            .arg(VALUE_MAX);
    }
    let mut refusal = None;
    let found = answers(&mut pipeline, commands)
        .await?
        .into_iter()
        .map(|answer| match answer {
            Ok(Value::BulkString(value)) => Ok(Found::read(&value)),
            Ok(Value::Nil) => Ok(Found::Nothing),
            Ok(_) => Ok(Found::Nonsense),
            // Somebody has put a list there, or the like.
            Err(error) if error.code() == Some("WRONGTYPE") => Ok(Found::Nonsense),
            // It is loading its data, and has none until then; or it is none of its refusals.
            Err(error) if matches!(error.code(), None | Some("LOADING")) => Err(error),
            // It does not let us read, or another of its cluster has that key. To connect again would not help.
            Err(error) => {
                refusal.get_or_insert(error);
                Ok(Found::Nonsense)
            }
        })
        .collect::<RedisResult<Vec<_>>>()?;
    shared.give(batch.into_iter().zip(found));
    Ok(Done::Answered(refusal))
}

async fn write(
    commands: MultiplexedConnection,
    batch: Vec<Change>,
    shared: Arc<Shared>,
) -> RedisResult<Done> {
    let mut pipeline = Pipeline::with_capacity(batch.len());
    let seconds = CACHE_ENTRY.as_secs();
    for Change { flow, entry, kind } in &batch {
        let key = flow.to_string();
        match kind {
            ChangeKind::Proven => pipeline
                .cmd("SET")
                .arg(key)
                .arg(entry.to_string())
                .arg("EX")
                .arg(seconds),
            ChangeKind::Alive => pipeline
                .cmd("EVAL")
                .arg(ALIVE)
                .arg(1)
                .arg(key)
                .arg(entry.session_part())
                .arg(entry.restart.to_string())
                .arg(seconds),
            ChangeKind::Closed => pipeline
                .cmd("EVAL")
                .arg(CLOSED)
                .arg(1)
                .arg(key)
                .arg(entry.session_part()),
        };
    }
    let answers = answers(&mut pipeline, commands).await?;
    let total = answers.len();
    let refusals: Vec<RedisError> = answers.into_iter().filter_map(Result::err).collect();
    Totals::add(&shared.totals.writes, total - refusals.len());
    Totals::add(&shared.totals.refused, refusals.len());
    Ok(Done::Written(refusals.into_iter().next()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use firsthop_relay_core::limits::RECALL_WAIT;
    use firsthop_relay_core::{FlowId, Transport};
    use firsthop_shared::address::{ClientAddr, IngressId};

    use super::*;

    #[test]
    fn a_look_up_without_an_answer_holds_no_end() {
        // It ends when the test does.
        let (_answer, answered) = sync_channel::<()>(0);
        let (asked, is_asked) = tokio::sync::oneshot::channel();
        let (ended, has_ended) = sync_channel(1);
        std::thread::spawn(move || {
            let result = block_on(async {
                let look_up = tokio::task::spawn_blocking(move || {
                    let _ = asked.send(());
                    let _ = answered.recv();
                });
                tokio::select! {
                    _ = look_up => {}
                    _ = is_asked => {}
                }
            });
            let _ = ended.send(result);
        });
        let result = has_ended.recv_timeout(Duration::from_secs(20));
        result.expect("in time").expect("a runtime");
    }

    #[test]
    fn a_question_whose_packets_wait_no_more_is_not_sent() {
        let wait = Duration::from_micros(RECALL_WAIT.0);
        let start = Instant::now();
        let (queue, questions) = sync_channel(3 * CACHE_BATCH);
        for number in 0..3 * CACHE_BATCH {
            let stale = number < CACHE_BATCH;
            let question = Question {
                core: number as u16,
                flow: FlowId {
                    ingress: IngressId(0),
                    transport: Transport::Udp,
                    client: ClientAddr::new(([192, 0, 2, 1], 4_000).into()),
                },
                since: start + Duration::from_micros(u64::from(!stale)),
            };
            queue.try_send(question).expect("room");
        }
        let next = || -> Vec<usize> {
            let batch = next_questions(&questions, start + wait);
            batch.iter().map(|one| usize::from(one.core)).collect()
        };
        let (second, third) = (CACHE_BATCH, 2 * CACHE_BATCH);
        assert_eq!(next(), (second..third).collect::<Vec<_>>());
        assert_eq!(next(), (third..3 * CACHE_BATCH).collect::<Vec<_>>());
        assert!(next().is_empty());
    }
}
