//! The monitor: one worker process that asks NVML what all clients ask. It is started when the first one asks, and again when it has
//! ended.
//!
//! Whose a process is, it cannot know: the driver names workers, and clients know their own processes. That part of the answer comes
//! from the table of sessions. A client is told of programs of its own tenant on its own machine
//! only; process ids of other machines mean nothing there.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use towline_wire::control::{
    Answer, Hello, Message, NvmlAnswers, NvmlQuestions, Purpose, Question, SHOWN_NAME,
    SessionStatus, printable,
};
use towline_wire::nvml::snapshot::{Device, Snapshot};
use towline_wire::nvml::{
    DeviceGetMemoryInfo, DeviceGetMemoryInfoReply, DeviceGetMemoryInfoV2,
    DeviceGetMemoryInfoV2Reply, DeviceGetPowerUsage, DeviceGetPowerUsageReply,
    DeviceGetTemperature, DeviceGetTemperatureReply, DeviceGetTopologyCommonAncestor,
    DeviceGetUtilizationRates, DeviceGetUtilizationRatesReply, DeviceHandle, DeviceOnSameBoard,
    List, Memory, MemoryV2, Message as _, NVML_ERROR_INSUFFICIENT_SIZE,
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_UNKNOWN, NVML_SUCCESS, NVML_TEMPERATURE_GPU, Processes,
    ProcessesReply, Request,
};

use super::devices::{self, Snapshots};
use super::pool::WorkerPool;
use super::session::SessionTable;
use super::tenant::Tenant;
use super::worker::Worker;
use super::{WORKER_END_LIMIT, lock};

/// How long the library may take for one message of questions.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Version 2 of the structure, whose size is 40 bytes.
const MEMORY_V2: u32 = 2 << 24 | 40;
/// Processes of a device that are asked for.
const PROCESSES: u32 = 512;

/// The one worker that answers questions, when there is one.
pub(super) struct Monitor {
    pool: Arc<WorkerPool>,
    worker: Arc<Mutex<Option<Arc<Worker>>>>,
    /// Held while one is started, so that two who ask at once start one.
    starting: Mutex<()>,
    asking: Asking,
}

/// One asks at a time: the worker answers in order, its channel holds a few messages only, and each has a limit of time.
#[derive(Default)]
struct Asking {
    now: Mutex<bool>,
    over: Condvar,
}

/// A turn to ask; dropping it lets the next one ask.
struct Turn<'a>(&'a Asking);

impl Asking {
    /// Waits until nobody else asks; in the error, that this takes longer than `limit`.
    fn turn(&self, limit: Duration) -> Result<Turn<'_>, String> {
        let waited = self
            .over
            .wait_timeout_while(lock(&self.now), limit, |now| *now);
        let (mut now, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *now, true) {
            false => Ok(Turn(self)),
            true => Err("too many ask at once".into()),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.now) = false;
        self.0.over.notify_one();
    }
}

impl Monitor {
    /// Workers come from `pool`.
    pub(super) fn new(pool: Arc<WorkerPool>) -> Self {
        Self {
            pool,
            worker: Arc::default(),
            starting: Mutex::default(),
            asking: Asking::default(),
        }
    }

    /// What never changes; in the error, why there is nothing to tell.
    pub(super) fn snapshot(&self) -> Result<Vec<u8>, String> {
        Ok(self.worker()?.snapshot().to_vec())
    }

    /// Answers a client's questions, one for one.
    pub(super) fn answer(
        &self,
        asked: &NvmlQuestions,
        asker: &Asker<'_>,
        sessions: &SessionTable,
    ) -> NvmlAnswers {
        match self.ask(asked, Some(asker.tenant)) {
            Ok((mut answers, devices)) => {
                let own = Owned {
                    asker,
                    sessions,
                    one_device: devices == 1,
                };
                for (answer, question) in answers.answers.iter_mut().zip(&asked.questions) {
                    match question.call {
                        Processes::ID => *answer = own.processes(question, answer),
                        _ if asker.memory_limit == 0 || answer.status != NVML_SUCCESS => {}
                        DeviceGetMemoryInfo::ID => {
                            let told = DeviceGetMemoryInfoReply::decode(&answer.body);
                            if let Ok(DeviceGetMemoryInfoReply { memory: Some(all) }) = told {
                                answer.body.clear();
                                let memory = Some(own.memory(all));
                                DeviceGetMemoryInfoReply { memory }.encode(&mut answer.body);
                            }
                        }
                        DeviceGetMemoryInfoV2::ID => {
                            let told = DeviceGetMemoryInfoV2Reply::decode(&answer.body);
                            if let Ok(DeviceGetMemoryInfoV2Reply { memory: Some(all) }) = told {
                                let Memory { total, free, used } = own.memory(Memory {
                                    total: all.total,
                                    free: all.free,
                                    used: all.used,
                                });
                                answer.body.clear();
                                let memory = Some(MemoryV2 {
                                    total,
                                    free,
                                    used,
                                    // The device's, not the session's.
                                    reserved: 0,
                                    ..all
                                });
                                DeviceGetMemoryInfoV2Reply { memory }.encode(&mut answer.body);
                            }
                        }
                        _ => {}
                    }
                }
                answers
            }
            Err(reason) => {
                if asker.tenant.requests().admit() {
                    log::warn!("NVML cannot be asked: {reason}");
                }
                let answers = asked.questions.iter().map(|_| refusal(NVML_ERROR_UNKNOWN));
                NvmlAnswers {
                    answers: answers.collect(),
                }
            }
        }
    }

    /// The library's answers to a tenant that asks, if it is one, and how many devices it has.
    fn ask(
        &self,
        asked: &NvmlQuestions,
        tenant: Option<&Arc<Tenant>>,
    ) -> Result<(NvmlAnswers, usize), String> {
        let _turn = self.asking.turn(ANSWER_LIMIT)?;
        let worker = self.worker()?;
        let numbers =
            tenant.map(|tenant| devices::chosen(Snapshots::Nvml, worker.snapshot(), tenant).0);
        let numbers = numbers.flatten();
        let devices = Snapshot::decode(worker.snapshot())
            .map_err(|error| error.to_string())?
            .devices
            .len();
        let questions = asked.questions.iter().map(|question| {
            let question = of_devices(question, numbers.as_deref());
            match question.call {
                Processes::ID => all_processes(&question),
                _ => question,
            }
        });
        let questions = Message::NvmlQuestions(NvmlQuestions {
            questions: questions.collect(),
        });
        let frame = worker
            .ask(&questions.encode(), ANSWER_LIMIT)
            .inspect_err(|_| self.give_up(&worker))?;
        match Message::decode(&frame) {
            Ok(Message::NvmlAnswers(answers)) if answers.answers.len() == asked.questions.len() => {
                Ok((answers, devices))
            }
            _ => Err("the monitor's answer is none".into()),
        }
    }

    /// Figures of each device now, by the library; none where no worker has loaded it.
    pub(super) fn figures(&self) -> Vec<Figures> {
        let Some(worker) = lock(&self.worker).clone() else {
            return Vec::new();
        };
        let Ok(snapshot) = Snapshot::decode(worker.snapshot()) else {
            return Vec::new();
        };
        let devices = (1..).zip(&snapshot.devices);
        let figures = devices.map_while(|(number, device)| {
            let asked = Figures::questions(DeviceHandle(number));
            let (answers, _) = self.ask(&asked, None).ok()?;
            Some(Figures::new(device, &answers))
        });
        figures.collect()
    }

    /// Ends the worker and returns when it is reaped.
    pub(super) fn stop(&self) {
        let worker = lock(&self.worker).take();
        if let Some(worker) = worker {
            worker.ask_to_end();
            worker.wait_reaped(WORKER_END_LIMIT);
        }
        self.pool.stop();
    }

    /// Ends a worker that does not answer, be it dead or stuck in the driver; the next question starts another.
    fn give_up(&self, worker: &Arc<Worker>) {
        let mut known = lock(&self.worker);
        if known
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, worker))
        {
            *known = None;
        }
        drop(known);
        worker.ask_to_end();
        worker.wait_reaped(WORKER_END_LIMIT);
    }

    fn worker(&self) -> Result<Arc<Worker>, String> {
        let _starting = lock(&self.starting);
        let known = lock(&self.worker).clone();
        if let Some(worker) = known {
            return Ok(worker);
        }
        let place = Arc::clone(&self.worker);
        let worker = self.pool.take(Box::new(move |ending| {
            if let Some(ending) = ending {
                log::error!("the monitor ended: {}", ending.reason);
            }
            *lock(&place) = None;
        }))?;
        *lock(&self.worker) = Some(Arc::clone(&worker));
        Ok(worker)
    }
}

/// Figures of a device at a moment, as far as NVML has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) name: String,
    pub(super) uuid: String,
    /// In percent.
    pub(super) utilisation: Option<u32>,
    /// Without what the driver reserves.
    pub(super) used_bytes: Option<u64>,
    pub(super) free_bytes: Option<u64>,
    pub(super) power_mw: Option<u32>,
    pub(super) celsius: Option<u32>,
}

impl Figures {
    fn questions(device: DeviceHandle) -> NvmlQuestions {
        let memory = MemoryV2 {
            version: MEMORY_V2,
            ..MemoryV2::default()
        };
        let questions = vec![
            question(&DeviceGetUtilizationRates { device }),
            question(&DeviceGetMemoryInfoV2 { device, memory }),
            question(&DeviceGetPowerUsage { device }),
            question(&DeviceGetTemperature {
                device,
                sensorType: NVML_TEMPERATURE_GPU,
            }),
        ];
        NvmlQuestions { questions }
    }

    fn new(device: &Device, answers: &NvmlAnswers) -> Self {
        let text = |bytes: &[u8]| printable(&String::from_utf8_lossy(bytes), SHOWN_NAME);
        let mut figures = Self {
            name: text(&device.name),
            uuid: text(&device.uuid),
            ..Self::default()
        };
        let [utilisation, memory, power, temperature] = answers.answers.as_slice() else {
            return figures;
        };
        let utilisation = reply::<DeviceGetUtilizationRatesReply>(utilisation);
        let utilisation = utilisation.and_then(|reply| reply.utilization);
        figures.utilisation = utilisation.map(|utilisation| utilisation.gpu);
        let memory = reply::<DeviceGetMemoryInfoV2Reply>(memory).and_then(|reply| reply.memory);
        figures.used_bytes = memory.map(|memory| memory.used);
        figures.free_bytes = memory.map(|memory| memory.free);
        figures.power_mw = reply::<DeviceGetPowerUsageReply>(power).and_then(|reply| reply.power);
        figures.celsius =
            reply::<DeviceGetTemperatureReply>(temperature).and_then(|reply| reply.temp);
        figures
    }
}

fn question<'a, Q: Request<'a>>(request: &Q) -> Question {
    let mut body = Vec::new();
    request.encode(&mut body);
    Question { call: Q::ID, body }
}

fn reply<'a, R: towline_wire::nvml::Message<'a>>(answer: &'a Answer) -> Option<R> {
    (answer.status == NVML_SUCCESS)
        .then(|| R::decode(&answer.body).ok())
        .flatten()
}

/// Who asks.
pub(super) struct Asker<'a> {
    pub(super) hello: &'a Hello,
    pub(super) tenant: &'a Arc<Tenant>,
    /// Its address.
    pub(super) peer: &'a str,
    /// Most device memory of its session; 0 limits nothing.
    pub(super) memory_limit: u64,
}

fn refusal(status: i32) -> Answer {
    Answer {
        status,
        body: Vec::new(),
    }
}

/// The question if the devices that it names are among those with these numbers, where there are any; else one that is none, which is answered
/// as wrong. Handles are without what the client calls the server, so that an answer that is kept serves all.
fn of_devices(question: &Question, numbers: Option<&[u32]>) -> Question {
    let (call, mut body) = (question.call, question.body.clone());
    // All requests begin with a handle, these with two.
    let handles = match call {
        DeviceGetTopologyCommonAncestor::ID | DeviceOnSameBoard::ID => 2,
        _ => 1,
    };
    let (words, _) = body.as_chunks_mut::<{ size_of::<u64>() }>();
    for handle in words.iter_mut().take(handles) {
        handle[size_of::<u32>()..].fill(0);
        let number = DeviceHandle(u64::from_le_bytes(*handle)).number();
        let is_own = |numbers: &[u32]| numbers.iter().any(|own| Some(*own as usize) == number);
        if !numbers.is_none_or(is_own) {
            let body = Vec::new();
            return Question { call, body };
        }
    }
    Question { call, body }
}

/// The question for all of a device's processes, whatever room the client has.
fn all_processes(question: &Question) -> Question {
    let mut body = Vec::new();
    if let Ok(asked) = Processes::decode(&question.body) {
        let all = Processes {
            room: PROCESSES,
            ..asked
        };
        all.encode(&mut body);
    }
    Question {
        call: question.call,
        body,
    }
}

/// What tells whose a process is.
struct Owned<'a> {
    asker: &'a Asker<'a>,
    sessions: &'a SessionTable,
    /// What a session holds is on this one.
    one_device: bool,
}

impl Owned<'_> {
    /// The asking machine's own among the processes that the driver names.
    fn processes(&self, question: &Question, answer: &Answer) -> Answer {
        let Ok(asked) = Processes::decode(&question.body) else {
            return refusal(NVML_ERROR_INVALID_ARGUMENT);
        };
        let known = ProcessesReply::decode(&answer.body);
        let known: Vec<(u32, u64)> = match (answer.status, &known) {
            (NVML_ERROR_INVALID_ARGUMENT, _) => return answer.clone(),
            (
                NVML_SUCCESS,
                Ok(ProcessesReply {
                    pids: Some(pids),
                    bytes: Some(bytes),
                    ..
                }),
            ) => pids.iter().zip(bytes.iter()).collect(),
            // A driver that does not tell; sessions are known all the same.
            _ => Vec::new(),
        };
        let own: Vec<(u32, u64)> = self
            .sessions
            .status(Some(self.asker.tenant))
            .iter()
            .filter(|session| self.is_own(session))
            .filter_map(|session| {
                let told = known.iter().find(|(pid, _)| *pid == session.worker_pid);
                // In a container the driver may not name our workers.
                let held = (self.one_device && session.device_memory_bytes > 0)
                    .then_some(session.device_memory_bytes);
                let bytes = told.map(|(_, bytes)| *bytes).or(held)?;
                Some((session.client_pid, bytes))
            })
            .collect();
        let room = asked.room as usize;
        if 0 < room && room < own.len() {
            return refusal(NVML_ERROR_INSUFFICIENT_SIZE);
        }
        let (pids, bytes): (Vec<u32>, Vec<u64>) = own.iter().take(room).copied().unzip();
        let reply = ProcessesReply {
            count: own.len() as u64,
            pids: Some(List::Values(&pids)),
            bytes: Some(List::Values(&bytes)),
        };
        let mut body = Vec::new();
        reply.encode(&mut body);
        Answer {
            status: NVML_SUCCESS,
            body,
        }
    }

    /// A device's memory as a session with a limit sees it: what others hold shows only where they leave less than the limit.
    fn memory(&self, all: Memory) -> Memory {
        let pid = self.asker.hello.pid;
        let sessions = self.sessions.status(Some(self.asker.tenant));
        let own = sessions
            .iter()
            .filter(|session| session.client_pid == pid && self.is_own(session));
        let held: u64 = own.map(|session| session.device_memory_bytes).sum();
        let total = all.total.min(self.asker.memory_limit);
        let free = total.saturating_sub(held).min(all.free);
        Memory {
            total,
            free,
            used: total - free,
        }
    }

    fn is_own(&self, session: &SessionStatus) -> bool {
        session.purpose == Purpose::CudaSession
            && session.hostname == self.asker.hello.hostname
            && host(&session.peer) == host(self.asker.peer)
    }
}

/// An address without its port.
fn host(peer: &str) -> &str {
    peer.rsplit_once(':').map_or(peer, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_about_own_devices_only() {
        let of = |number| DeviceHandle::of(7, number);
        let power = |number| question(&DeviceGetPowerUsage { device: of(number) });
        let pair = |one, other| {
            question(&DeviceOnSameBoard {
                device1: of(one),
                device2: of(other),
            })
        };
        let is_asked = |question: &Question, numbers: Option<&[u32]>| {
            !of_devices(question, numbers).body.is_empty()
        };
        assert!(is_asked(&power(2), None) && is_asked(&pair(1, 2), None));
        assert!(is_asked(&power(2), Some(&[0, 2])) && is_asked(&pair(2, 0), Some(&[0, 2])));
        for numbers in [&[0, 1][..], &[]] {
            assert!(!is_asked(&power(2), Some(numbers)));
            assert!(!is_asked(&pair(0, 2), Some(numbers)));
            assert!(!is_asked(&pair(2, 0), Some(numbers)));
        }
        let common = DeviceGetTopologyCommonAncestor {
            device1: of(0),
            device2: of(2),
        };
        assert!(!is_asked(&question(&common), Some(&[0])));
    }

    #[test]
    fn name_of_the_server_makes_no_other_question() {
        let power = |server| DeviceGetPowerUsage {
            device: DeviceHandle::of(server, 1),
        };
        let asked = of_devices(&question(&power(9)), None);
        assert_eq!(asked, question(&power(0)));
    }

    #[test]
    fn one_asks_at_a_time() {
        let asking = Asking::default();
        let first = asking.turn(Duration::ZERO).ok();
        assert!(first.is_some() && asking.turn(Duration::ZERO).is_err());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| asking.turn(ANSWER_LIMIT).is_ok());
            drop(first);
            assert!(next.join().unwrap());
        });
        assert!(asking.turn(Duration::ZERO).is_ok());
    }
}
