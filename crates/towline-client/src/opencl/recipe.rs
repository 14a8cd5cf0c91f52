//! What it takes to make the objects of a session again on another server: kept per live object, dropped with it.
//!
//! An object's recipe is the request that made it, as it was sent, without contents: the server has those. Programs add the steps
//! that they went through, kernels keep their arguments where launches take them from ([`super::kernel`]), events are in the
//! session's state. The platform layer has parents outlive their children, so numbers, which count up, are an order in which
//! everything can be made. Only a program may have been linked from others that have ended since: it keeps their recipes.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use towline_backend::opencl as wire;
use towline_backend::opencl::*;

use super::{Arc, Mutex, lock};

/// Most generations of linking: what was linked from programs that were linked, and so on, is not kept without end.
const GENERATIONS: u32 = 64;

/// The request that made an object.
pub(super) struct Recipe {
    pub(super) request: u16,
    pub(super) body: Box<[u8]>,
}

impl Recipe {
    pub(super) fn new<'a, R: Request<'a>>(request: &R) -> Self {
        let mut body = Vec::with_capacity(64);
        request.encode(&mut body);
        Self {
            request: R::ID,
            body: body.into(),
        }
    }

    /// The request, if it is one of this kind.
    pub(super) fn read<'a, R: Request<'a>>(&'a self) -> Option<R> {
        (self.request == R::ID)
            .then(|| R::decode(&self.body).ok())
            .flatten()
    }
}

/// A device that was partitioned.
pub(super) struct Partition {
    pub(super) recipe: Recipe,
    pub(super) made: u64,
    /// The parts that live.
    pub(super) live: Vec<u64>,
}

/// The recipes of a session's contexts, queues, memory objects, samplers and parts of devices.
#[derive(Default)]
pub(super) struct Recipes {
    objects: Mutex<HashMap<u64, Recipe>>,
    /// By the number of the first part.
    partitions: Mutex<BTreeMap<u64, Partition>>,
    /// Pipes, and whether a kernel was given each.
    pipes: Mutex<HashMap<u64, bool>>,
    any_pipe: AtomicBool,
    /// Default queues of devices, by context and device.
    defaults: Mutex<HashMap<(u64, u64), u64>>,
}

/// The kind in a number's bits.
pub(super) fn tag(id: u64) -> u8 {
    (id >> 40) as u8
}

/// What a number's place in the order of creation is.
pub(super) fn age(id: u64) -> u64 {
    id & ((1 << 40) - 1)
}

impl Recipes {
    pub(super) fn made(&self, id: u64, recipe: Recipe) {
        if recipe.request == wire::CreatePipe::ID {
            lock(&self.pipes).insert(id, false);
            self.any_pipe.store(true, Ordering::Relaxed);
        }
        lock(&self.objects).insert(id, recipe);
    }

    pub(super) fn ended(&self, id: u64) {
        match tag(id) {
            wire::DeviceHandle::TAG => self.part_ended(id),
            wire::CommandQueueHandle::TAG => {
                lock(&self.defaults).retain(|_, queue| *queue != id);
            }
            wire::ContextHandle::TAG => {
                lock(&self.defaults).retain(|(context, _), _| *context != id);
            }
            wire::MemHandle::TAG if self.any_pipe.load(Ordering::Relaxed) => {
                lock(&self.pipes).remove(&id);
            }
            _ => {}
        }
        lock(&self.objects).remove(&id);
    }

    fn part_ended(&self, id: u64) {
        let mut partitions = lock(&self.partitions);
        let Some((first, partition)) = partitions.range_mut(..=id).next_back() else {
            return;
        };
        partition.live.retain(|part| *part != id);
        if partition.live.is_empty() {
            let first = *first;
            partitions.remove(&first);
        }
    }

    pub(super) fn partitioned(&self, first: u64, made: u64, request: &wire::PartitionDevice<'_>) {
        let partition = Partition {
            recipe: Recipe::new(request),
            made,
            live: (first..first + made.min(request.room.into())).collect(),
        };
        lock(&self.partitions).insert(first, partition);
    }

    pub(super) fn set_default(&self, key: (u64, u64), queue: u64) {
        lock(&self.defaults).insert(key, queue);
    }

    /// A kernel was given the memory object in these bytes: if it is a pipe, something may be in it from now on.
    pub(super) fn used(&self, value: &[u8]) {
        if !self.any_pipe.load(Ordering::Relaxed) {
            return;
        }
        let id = value.try_into().map(u64::from_ne_bytes).unwrap_or_default();
        if let Some(used) = lock(&self.pipes).get_mut(&id) {
            *used = true;
        }
    }

    /// Whether some pipe may hold packets, which no call of the API reads.
    pub(super) fn any_pipe_used(&self) -> bool {
        lock(&self.pipes).values().any(|used| *used)
    }

    /// Runs `with` over all recipes in an order in which the objects can be made.
    pub(super) fn in_order<E>(
        &self,
        mut with: impl FnMut(u64, &Recipe, Option<&Partition>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (objects, partitions) = (lock(&self.objects), lock(&self.partitions));
        let objects = objects.iter().map(|(id, recipe)| (*id, recipe, None));
        let partitions = partitions
            .iter()
            .map(|(first, partition)| (*first, &partition.recipe, Some(partition)));
        let mut all: Vec<_> = objects.chain(partitions).collect();
        all.sort_unstable_by_key(|(id, ..)| age(*id));
        all.into_iter()
            .try_for_each(|(id, recipe, partition)| with(id, recipe, partition))
    }

    /// Runs `read` over the recipe of an object.
    pub(super) fn with<T>(&self, id: u64, read: impl FnOnce(&Recipe) -> T) -> Option<T> {
        lock(&self.objects).get(&id).map(read)
    }

    pub(super) fn defaults(&self) -> Vec<((u64, u64), u64)> {
        let defaults = lock(&self.defaults);
        defaults.iter().map(|(key, queue)| (*key, *queue)).collect()
    }

    /// Bytes that the recipes take.
    pub(super) fn bytes(&self) -> usize {
        let objects = lock(&self.objects);
        let bodies = objects.values().map(|recipe| recipe.body.len());
        let partitions = lock(&self.partitions);
        let parts = partitions.values().map(|partition| {
            size_of::<(u64, Partition)>()
                + partition.recipe.body.len()
                + partition.live.capacity() * size_of::<u64>()
        });
        bodies.sum::<usize>()
            + objects.capacity() * size_of::<(u64, Recipe)>()
            + parts.sum::<usize>()
            + lock(&self.pipes).capacity() * size_of::<(u64, bool)>()
            + lock(&self.defaults).capacity() * size_of::<((u64, u64), u64)>()
    }
}

/// Devices that a step names; none stands for all of the program's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Devices(Box<[wire::DeviceHandle]>);

impl Devices {
    pub(super) fn new(devices: &[wire::DeviceHandle]) -> Self {
        Self(devices.into())
    }

    pub(super) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    pub(super) fn list(&self) -> Option<wire::List<'_, wire::DeviceHandle>> {
        (!self.0.is_empty()).then_some(wire::List::Values(&self.0))
    }
}

/// Where a program comes from.
#[derive(Debug)]
pub(super) enum Origin {
    /// Source, binaries, intermediate language or built-in kernels: the request that gave them.
    Given { request: u16, body: Box<[u8]> },
    /// Other programs, each with its number and how it was made by then.
    Linked {
        context: u64,
        devices: Devices,
        options: Option<Box<[u8]>>,
        inputs: Vec<(u64, Making)>,
        status: cl_int,
        generation: u32,
    },
    /// More generations of linking than are kept.
    Forgotten,
}

impl Origin {
    pub(super) fn given<'a, R: Request<'a>>(request: &R) -> Self {
        let Recipe { request, body } = Recipe::new(request);
        Self::Given { request, body }
    }

    /// The text of a program made from source.
    pub(super) fn source(&self) -> Option<&[u8]> {
        match self {
            Self::Given { request, body } if *request == wire::CreateProgramSource::ID => {
                Some(wire::CreateProgramSource::decode(body).ok()?.source)
            }
            _ => None,
        }
    }

    pub(super) fn linked(
        context: u64,
        devices: Devices,
        options: Option<Box<[u8]>>,
        inputs: Vec<(u64, Making)>,
        status: cl_int,
    ) -> Self {
        let generations = inputs.iter().map(|(_, making)| making.origin.generation());
        let generation = generations.max().unwrap_or(0) + 1;
        if generation > GENERATIONS {
            return Self::Forgotten;
        }
        Self::Linked {
            context,
            devices,
            options,
            inputs,
            status,
            generation,
        }
    }

    fn generation(&self) -> u32 {
        match self {
            Self::Given { .. } => 0,
            Self::Linked { generation, .. } => *generation,
            Self::Forgotten => GENERATIONS,
        }
    }
}

/// Something that was done to a program.
#[derive(Debug)]
pub(super) enum Step {
    Constant {
        id: u32,
        value: Box<[u8]>,
    },
    Build {
        devices: Devices,
        options: Option<Box<[u8]>>,
        /// Files that went along.
        files: Option<Box<[u8]>>,
        status: cl_int,
    },
    Compile {
        devices: Devices,
        options: Option<Box<[u8]>>,
        /// Number, text and include name of each header.
        headers: Vec<(u64, Making, Box<[u8]>)>,
        /// Files that went along.
        files: Option<Box<[u8]>>,
        status: cl_int,
    },
}

impl Step {
    fn devices(&self) -> Option<&Devices> {
        match self {
            Self::Constant { .. } => None,
            Self::Build { devices, .. } | Self::Compile { devices, .. } => Some(devices),
        }
    }
}

/// How a program was made: where it comes from, and the steps since. Copies share both.
#[derive(Debug, Clone)]
pub(super) struct Making {
    pub(super) origin: Arc<Origin>,
    pub(super) steps: Vec<Arc<Step>>,
}

impl Making {
    pub(super) fn new(origin: Origin) -> Self {
        Self {
            origin: Arc::new(origin),
            steps: Vec::new(),
        }
    }

    /// The program as it was before any step: what a header gives.
    pub(super) fn text(&self) -> Self {
        Self {
            origin: Arc::clone(&self.origin),
            steps: Vec::new(),
        }
    }

    /// Adds a step. What it makes of no effect is forgotten, so that a program that is built again and again does not grow.
    pub(super) fn step(&mut self, step: Step) {
        match &step {
            Step::Constant { id, .. } => {
                // Values that some build has used stay, as long as that build counts.
                let kept = self.steps.iter().rposition(|step| step.devices().is_some());
                let kept = kept.map_or(0, |last| last + 1);
                let mut at = 0;
                self.steps.retain(|step| {
                    at += 1;
                    at <= kept || !matches!(&**step, Step::Constant { id: old, .. } if old == id)
                });
            }
            Step::Build { devices, .. } | Step::Compile { devices, .. } => {
                self.steps.retain(|step| {
                    let same = |old: &Devices| devices.0.is_empty() || old == devices;
                    !step.devices().is_some_and(same)
                });
                self.drop_unused_constants();
            }
        }
        self.steps.push(Arc::new(step));
    }

    /// Forgets constants that another value of the same one follows before any build does.
    fn drop_unused_constants(&mut self) {
        let mut later: Vec<u32> = Vec::new();
        let mut kept: Vec<Arc<Step>> = Vec::new();
        for step in self.steps.drain(..).rev() {
            match &*step {
                Step::Constant { id, .. } if later.contains(id) => continue,
                Step::Constant { id, .. } => later.push(*id),
                _ => later.clear(),
            }
            kept.push(step);
        }
        kept.reverse();
        self.steps = kept;
    }

    /// Whether both went the same way.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.origin, &other.origin)
            && self.steps.len() == other.steps.len()
            && (self.steps.iter().zip(&other.steps)).all(|(one, two)| Arc::ptr_eq(one, two))
    }

    /// Bytes kept for making it again, each part counted once in `seen`.
    pub(super) fn bytes(&self, seen: &mut std::collections::HashSet<usize>) -> usize {
        let text = |options: &Option<Box<[u8]>>| options.as_ref().map_or(0, |text| text.len());
        let mut bytes = self.steps.capacity() * size_of::<Arc<Step>>();
        if seen.insert(Arc::as_ptr(&self.origin).addr()) {
            bytes += size_of::<Origin>();
            bytes += match &*self.origin {
                Origin::Given { body, .. } => body.len(),
                Origin::Linked {
                    options, inputs, ..
                } => {
                    let inputs = inputs.iter();
                    text(options)
                        + inputs
                            .map(|(_, making)| size_of::<(u64, Self)>() + making.bytes(seen))
                            .sum::<usize>()
                }
                Origin::Forgotten => 0,
            };
        }
        for step in &self.steps {
            if !seen.insert(Arc::as_ptr(step).addr()) {
                continue;
            }
            bytes += size_of::<Step>();
            bytes += match &**step {
                Step::Constant { value, .. } => value.len(),
                Step::Build { options, files, .. } => text(options) + text(files),
                Step::Compile {
                    options,
                    headers,
                    files,
                    ..
                } => {
                    let headers = headers.iter();
                    text(options)
                        + text(files)
                        + headers
                            .map(|(_, making, name)| {
                                size_of::<(u64, Self, Box<[u8]>)>()
                                    + name.len()
                                    + making.bytes(seen)
                            })
                            .sum::<usize>()
                }
            };
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(id: u32, value: u8) -> Step {
        let value = Box::new([value]);
        Step::Constant { id, value }
    }

    fn build(devices: &[u64]) -> Step {
        let devices: Vec<_> = devices.iter().map(|id| wire::DeviceHandle(*id)).collect();
        Step::Build {
            devices: Devices::new(&devices),
            options: None,
            files: None,
            status: CL_SUCCESS,
        }
    }

    fn making(steps: Vec<Step>) -> String {
        let mut making = Making::new(Origin::Forgotten);
        steps.into_iter().for_each(|step| making.step(step));
        let letter = |step: &Arc<Step>| match &**step {
            Step::Constant { id, value } => format!("{id}={}", value[0]),
            Step::Build { devices, .. } => format!("build{}", devices.count()),
            Step::Compile { .. } => "compile".into(),
        };
        making
            .steps
            .iter()
            .map(letter)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn a_build_replaces_earlier_ones_for_the_same_devices_only() {
        assert_eq!(making(vec![build(&[]), build(&[])]), "build0");
        let each = vec![build(&[1]), build(&[2, 3]), build(&[1])];
        assert_eq!(making(each), "build2 build1");
        assert_eq!(making(vec![build(&[1]), build(&[2]), build(&[])]), "build0");
    }

    #[test]
    fn constants_stay_in_front_of_the_builds_that_used_them() {
        let steps = vec![
            constant(7, 1),
            build(&[1]),
            constant(7, 2),
            constant(7, 3),
            build(&[2]),
            constant(8, 4),
        ];
        assert_eq!(making(steps), "7=1 build1 7=3 build1 8=4");
    }

    #[test]
    fn a_program_that_is_built_again_and_again_does_not_grow() {
        let rounds = (0..100).flat_map(|round| [constant(7, round), build(&[])]);
        assert_eq!(making(rounds.collect()), "7=99 build0");
    }

    #[test]
    fn links_of_links_are_not_kept_without_end() {
        let mut making = Making::new(Origin::Given {
            request: 0,
            body: Box::default(),
        });
        for _ in 0..=GENERATIONS {
            let devices = Devices::new(&[]);
            let inputs = vec![(1, making)];
            making = Making::new(Origin::linked(1, devices, None, inputs, CL_SUCCESS));
        }
        assert!(matches!(&*making.origin, Origin::Forgotten));
    }

    #[test]
    fn parts_of_a_device_are_forgotten_with_the_last_of_them() {
        let recipes = Recipes::default();
        let first = u64::from(wire::DeviceHandle::TAG) << 40 | 10;
        let request = wire::PartitionDevice {
            in_device: wire::DeviceHandle(1),
            num_properties: 0,
            properties: wire::List::Values(&[]),
            first,
            room: 4,
        };
        recipes.partitioned(first, 2, &request);
        recipes.ended(first + 1);
        let count = |recipes: &Recipes| lock(&recipes.partitions).len();
        assert_eq!(count(&recipes), 1);
        recipes.ended(first);
        assert_eq!(count(&recipes), 0);
    }
}
