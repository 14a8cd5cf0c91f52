//! Recipes: all it takes to make a session's objects again on another server. They are the requests that made them, kept while the objects live, and of each
//! setting the last. Contents are the server's to tell, executable graphs and recordings of events the driver's to make again
//! ([`super::moving::Owner`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::cuda::texture_reference as setting;

use super::aliases::address_at;

/// Device code that a server was sent.
pub enum KeptImage {
    /// A copy.
    Bytes(Arc<Vec<u8>>),
    /// A way to read it again where it still is; `None` once it is not.
    Read(Box<dyn Fn() -> Option<Vec<u8>> + Send + Sync>),
}

impl std::fmt::Debug for KeptImage {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(to, "{} bytes", bytes.len()),
            Self::Read(_) => write!(to, "in the program"),
        }
    }
}

impl KeptImage {
    pub(super) fn bytes(&self) -> Option<Arc<Vec<u8>>> {
        match self {
            Self::Bytes(bytes) => Some(Arc::clone(bytes)),
            Self::Read(read) => read().map(Arc::new),
        }
    }
}

/// The thing that a recipe ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    /// An object with a number.
    Object(u64),
    /// Memory that begins there.
    Memory(u64),
    /// Physical memory of this number.
    Physical(u64),
    /// Reserved addresses that begin there.
    Reserved(u64),
    /// Physical memory that is mapped there.
    Mapped(u64),
    /// A texture of a context, by its number.
    Texture(u64, u64),
    /// A surface of a context, by its number.
    Surface(u64, u64),
    /// A device.
    Device(i32),
}

/// A request that is sent again.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    pub(super) request: u16,
    /// The context that it acted in.
    pub(super) context: u64,
    /// It has an answer.
    pub(super) asked: bool,
    pub(super) body: Box<[u8]>,
    pub(super) reply: Box<[u8]>,
    pub(super) key: Key,
    /// Tells settings of one object apart.
    slot: u64,
}

impl Recipe {
    #[cfg(test)]
    pub(super) fn of_memory(request: u16, address: u64, body: Vec<u8>) -> Self {
        Self {
            request,
            context: 0,
            asked: true,
            body: body.into(),
            reply: Box::default(),
            key: Key::Memory(address),
            slot: 0,
        }
    }

    /// The request, if it is one of this kind. It is asked in many places, none of which is in a hurry.
    #[inline(never)]
    pub(super) fn read<'a, R: Request<'a>>(&'a self) -> Option<R> {
        (self.request == R::ID)
            .then(|| R::decode(&self.body).ok())
            .flatten()
    }
}

macro_rules! noted {
    ($($request:ident),* $(,)?) => {
        /// Whether the recipes are told of a request.
        pub(super) const fn is_noted(id: u16) -> bool {
            $(id == <wire::$request<> as Request<'static>>::ID)||*
        }
    };
}

noted!(
    ContextCreate,
    PrimaryRetain,
    PrimaryRelease,
    PrimaryReset,
    ContextDestroy,
    CtxSetLimit,
    CtxSetCacheConfig,
    CtxSetSharedMemConfig,
    CtxEnablePeerAccess,
    CtxDisablePeerAccess,
    StreamCreate,
    StreamCreateWithPriority,
    StreamDestroyV2,
    StreamAttribute,
    EventCreate,
    EventDestroyV2,
    ModuleLoad,
    ModuleUnload,
    ModuleGetGlobalV2,
    ModuleGetTexRef,
    ModuleGetSurfRef,
    LibraryLoad,
    LibraryUnload,
    LibraryModule,
    LibraryGetGlobal,
    LibraryGetManaged,
    KernelFunction,
    KernelSetAttribute,
    KernelSetCacheConfig,
    FuncSetAttribute,
    FuncSetCacheConfig,
    FuncSetSharedMemConfig,
    Link,
    LinkEnd,
    MemoryAlloc,
    MemoryFree,
    PoolAlloc,
    PoolFree,
    PoolCreate,
    PoolOf,
    PoolSet,
    MemPoolDestroy,
    DeviceSetMemPool,
    SetAccess,
    PhysicalCreate,
    PhysicalRelease,
    AddressReserve,
    AddressFree,
    PhysicalMap,
    PhysicalUnmap,
    Array3DCreateV2,
    ArrayDestroy,
    ArrayGetPlane,
    MipmappedArrayCreate,
    MipmappedArrayGetLevel,
    MipmappedArrayDestroy,
    TextureCreate,
    TexObjectDestroy,
    SurfaceCreate,
    SurfObjectDestroy,
    TexRefCreate,
    TexRefDestroy,
    TextureReferenceSet,
    SurfRefSetArray,
    Share,
    OpenShared,
    GraphAnchor,
    GraphAnchorEnd,
    GraphAlloc,
    GraphCondition,
);

/// The recipes of a session.
#[derive(Debug, Default)]
pub(super) struct Recipes(Mutex<Known>);

#[derive(Debug, Default)]
pub(super) struct Known {
    /// By when they were noted.
    recipes: BTreeMap<u64, Recipe>,
    by_key: HashMap<Key, Vec<u64>>,
    next: u64,
    /// Number of the newest recipe when the request was made: an end of something at an address ends older ones alone, for the address may
    /// have been given out again since.
    before: u64,
    /// A texture or surface reference has been bound.
    is_bound: bool,
    /// Runs of functions' numbers: how many, and the module or library.
    runs: BTreeMap<u64, (u64, u64)>,
    images: HashMap<u64, Arc<KeptImage>>,
    /// Physical memory that was released while it was mapped.
    released: HashMap<u64, ()>,
    /// Links of device code that are under way.
    links: usize,
    obstacle: Option<&'static str>,
}

/// Words that tell what may be done from one location.
const ACCESS_WORDS: usize = 3;

/// Numbers that a module's or library's functions may have.
const FUNCTION_ROW: u64 = 262_144;

/// Whether a recipe belongs to no context, although its object was made in one.
fn outlives_contexts(recipe: &Recipe) -> bool {
    matches!(
        recipe.key,
        Key::Physical(_) | Key::Reserved(_) | Key::Mapped(_) | Key::Device(_)
    ) || [
        <wire::LibraryLoad<'_> as Request<'_>>::ID,
        <wire::LibraryGetManaged<'_> as Request<'_>>::ID,
        <wire::KernelSetAttribute as Request<'_>>::ID,
        <wire::KernelSetCacheConfig as Request<'_>>::ID,
        <wire::PoolAlloc as Request<'_>>::ID,
        <wire::PoolCreate as Request<'_>>::ID,
        <wire::PoolOf as Request<'_>>::ID,
        <wire::PoolSet as Request<'_>>::ID,
        <wire::SetAccess<'_> as Request<'_>>::ID,
    ]
    .contains(&recipe.request)
}

/// A number for a name: settings are told apart by numbers.
fn slot_of(name: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

impl Known {
    fn keep(&mut self, recipe: Recipe) {
        let number = self.next;
        self.next += 1;
        self.by_key.entry(recipe.key).or_default().push(number);
        self.recipes.insert(number, recipe);
    }

    /// Keeps the last of a setting.
    fn set(&mut self, recipe: Recipe) {
        self.unset(recipe.key, recipe.request, recipe.slot);
        self.keep(recipe);
    }

    fn unset(&mut self, key: Key, request: u16, slot: u64) {
        let Some(numbers) = self.by_key.get_mut(&key) else {
            return;
        };
        let recipes = &mut self.recipes;
        numbers.retain(|number| {
            let same = recipes
                .get(number)
                .is_some_and(|known| known.request == request && known.slot == slot);
            if same {
                recipes.remove(number);
            }
            !same
        });
        if numbers.is_empty() {
            self.by_key.remove(&key);
        }
    }

    fn end(&mut self, key: Key) {
        for number in self.by_key.remove(&key).into_iter().flatten() {
            self.recipes.remove(&number);
        }
    }

    /// Ends what begins at an address that the driver gives out.
    fn end_at(&mut self, key: Key) {
        let before = self.before;
        let numbers = self.by_key.get(&key).into_iter().flatten();
        let ended: Vec<u64> = numbers.copied().filter(|number| *number < before).collect();
        ended.into_iter().for_each(|number| self.end_one(number));
    }

    fn end_one(&mut self, number: u64) {
        let Some(recipe) = self.recipes.remove(&number) else {
            return;
        };
        if let Some(numbers) = self.by_key.get_mut(&recipe.key) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_key.remove(&recipe.key);
            }
        }
        if recipe.request == <wire::ModuleLoad<'_> as Request<'_>>::ID
            && let Key::Object(module) = recipe.key
        {
            self.forget_code(module);
        }
    }

    fn end_object(&mut self, object: u64) {
        self.end(Key::Object(object));
    }

    /// Ends a module or library, with what is known of its code.
    fn end_image(&mut self, image: u64) {
        self.end_object(image);
        self.forget_code(image);
    }

    fn forget_code(&mut self, image: u64) {
        self.images.remove(&image);
        self.runs.retain(|_, (_, of)| *of != image);
    }

    fn end_if(&mut self, ends: impl Fn(u64, &Recipe) -> bool) {
        let ended: Vec<u64> = self
            .recipes
            .iter()
            .filter(|(number, recipe)| ends(**number, recipe))
            .map(|(number, _)| *number)
            .collect();
        ended.into_iter().for_each(|number| self.end_one(number));
    }

    /// Ends what a context holds; `itself` too.
    fn end_context(&mut self, context: u64, itself: bool) {
        let peer = <wire::CtxEnablePeerAccess as Request<'_>>::ID;
        self.end_if(|_, recipe| {
            let of_it = recipe.context == context && !outlives_contexts(recipe);
            of_it || (recipe.request == peer && recipe.slot == context)
        });
        if itself {
            self.end_object(context);
        }
    }

    /// The module or library that a function is of.
    fn image_of(&self, function: u64) -> u64 {
        let before = self.runs.range(..=function).next_back();
        before
            .filter(|(first, (count, _))| function - **first < *count)
            .map_or(function, |(_, (_, of))| *of)
    }

    /// Ends what is mapped within these addresses, and what may be done with them.
    fn unmap(&mut self, start: u64, size: u64) {
        self.unbind_memory(start, size);
        let (range, before) = (start..start.saturating_add(size), self.before);
        self.end_if(|number, recipe| match recipe.key {
            Key::Mapped(at) => number < before && range.contains(&at),
            _ => false,
        });
        let released: Vec<u64> = self.released.keys().copied().collect();
        for memory in released {
            if !self.is_mapped(memory) {
                self.released.remove(&memory);
                self.end(Key::Physical(memory));
            }
        }
    }

    /// Bytes of the allocation at an address.
    fn size_at(&self, address: u64) -> u64 {
        let numbers = self.by_key.get(&Key::Memory(address)).into_iter().flatten();
        let numbers = numbers.filter(|number| **number < self.before);
        let sizes = numbers.filter_map(|number| {
            let recipe = self.recipes.get(number)?;
            let alone = recipe.read::<wire::MemoryAlloc>().map(|made| made.size);
            alone.or(recipe.read::<wire::PoolAlloc>().map(|made| made.size))
        });
        sizes.max().unwrap_or(0)
    }

    /// Texture references do not read these addresses any more.
    fn unbind_memory(&mut self, start: u64, size: u64) {
        if !self.is_bound {
            return;
        }
        let before = self.before;
        self.end_if(|number, recipe| {
            let address = recipe
                .read::<wire::TextureReferenceSet<'_>>()
                .and_then(|set| set.words.iter().nth(address_at(set.setting)?));
            number < before && address.is_some_and(|address| address.wrapping_sub(start) < size)
        });
    }

    /// References do not stand for an array any more, nor for a plane or level of it.
    fn unbind_array(&mut self, array: u64) {
        if !self.is_bound {
            return;
        }
        let numbers = self.by_key.get(&Key::Object(array)).into_iter().flatten();
        let parts = numbers.filter_map(|number| Some(self.recipes.get(number)?.slot));
        let arrays: Vec<u64> = parts.chain([array]).filter(|part| *part != 0).collect();
        self.end_if(|_, recipe| {
            let texture = recipe.read::<wire::TextureReferenceSet<'_>>();
            let texture = texture.map(|set| set.array.0 | set.mipmap.0);
            let surface = recipe.read::<wire::SurfRefSetArray>();
            let bound = texture.or(surface.map(|set| set.hArray.0));
            bound.is_some_and(|bound| arrays.contains(&bound))
        });
    }

    /// Bytes that are mapped from an address on at once.
    fn mapped_at(&self, address: u64) -> Option<u64> {
        let mut numbers = self.by_key.get(&Key::Mapped(address))?.iter();
        numbers.find_map(|number| {
            let map: wire::PhysicalMap = self.recipes.get(number)?.read()?;
            Some(map.size)
        })
    }

    /// Keeps who may use memory for each mapping, or pool, and each location apart: each has an end, and a last setting, of its own.
    fn note_access(&mut self, recipe: &Recipe, set: &wire::SetAccess<'_>) {
        let mut places = Vec::new();
        if set.pool.0 == 0 {
            let end = set.address.saturating_add(set.size);
            let mut address = set.address;
            while address < end
                && let Some(size) = self.mapped_at(address)
            {
                places.push((Key::Mapped(address), address, size));
                address = address.saturating_add(size);
            }
        } else {
            places.push((Key::Object(set.pool.0), 0, 0));
        }
        let words: Vec<u64> = set.access.iter().collect();
        for (key, address, size) in places {
            for access in words.chunks(ACCESS_WORDS) {
                let location = access.iter().take(2);
                let slot = location.fold(0, |slot, word| slot << 32 | (word & 0xffff_ffff));
                let one = wire::SetAccess {
                    pool: set.pool,
                    address,
                    size,
                    words: access.len() as u32,
                    access: wire::List::Values(access),
                };
                let mut body = Vec::new();
                Message::encode(&one, &mut body);
                self.set(Recipe {
                    body: body.into(),
                    key,
                    slot,
                    ..recipe.clone()
                });
            }
        }
    }

    fn is_mapped(&self, memory: u64) -> bool {
        let mut maps = self.recipes.values();
        maps.any(|recipe| {
            let map: Option<wire::PhysicalMap> = recipe.read();
            map.is_some_and(|map| map.memory == memory)
        })
    }

    /// Takes in a request that was posted, or answered well.
    fn note(&mut self, recipe: Recipe) {
        let context = recipe.context;
        let object = |recipe: Recipe, number: u64, slot: u64| Recipe {
            key: Key::Object(number),
            slot,
            ..recipe
        };
        if let Some(made) = recipe.read::<wire::ContextCreate>() {
            let number = made.context.0;
            return self.keep(object(recipe, number, 0));
        }
        if let Some(made) = recipe.read::<wire::PrimaryRetain>() {
            let number = made.context.0;
            return self.set(object(recipe, number, 0));
        }
        if let Some(ended) = recipe.read::<wire::PrimaryRelease>() {
            return self.end_context(ended.context.0, true);
        }
        if let Some(ended) = recipe.read::<wire::ContextDestroy>() {
            return self.end_context(ended.context.0, true);
        }
        if let Some(reset) = recipe.read::<wire::PrimaryReset>() {
            let mut contexts = self.recipes.values();
            let context = contexts.find_map(|known| {
                let made: Option<wire::PrimaryRetain> = known.read();
                made.filter(|made| made.device == reset.device)
            });
            if let Some(made) = context {
                self.end_context(made.context.0, true);
            }
            return;
        }
        if let Some(set) = recipe.read::<wire::CtxSetLimit>() {
            let slot = set.limit.into();
            return self.set(object(recipe, context, slot));
        }
        if let Some(set) = recipe.read::<wire::CtxEnablePeerAccess>() {
            let peer = set.peerContext.0;
            return self.set(object(recipe, context, peer));
        }
        if let Some(set) = recipe.read::<wire::CtxDisablePeerAccess>() {
            let request = <wire::CtxEnablePeerAccess as Request<'_>>::ID;
            return self.unset(Key::Object(context), request, set.peerContext.0);
        }
        if recipe.read::<wire::CtxSetCacheConfig>().is_some()
            || recipe.read::<wire::CtxSetSharedMemConfig>().is_some()
        {
            return self.set(object(recipe, context, 0));
        }
        self.note_streams(context, recipe);
    }

    fn note_streams(&mut self, context: u64, recipe: Recipe) {
        let object = |recipe: Recipe, number: u64, slot: u64| Recipe {
            key: Key::Object(number),
            slot,
            ..recipe
        };
        let stream = recipe
            .read::<wire::StreamCreate>()
            .map(|made| made.phStream);
        let other = recipe.read::<wire::StreamCreateWithPriority>();
        if let Some(stream) = stream.or(other.map(|made| made.phStream)) {
            return self.keep(object(recipe, stream.0, 0));
        }
        if let Some(ended) = recipe.read::<wire::StreamDestroyV2>() {
            return self.end_object(ended.hStream.0);
        }
        if let Some(set) = recipe.read::<wire::StreamAttribute<'_>>() {
            let of = match set.stream.0 {
                default if default <= wire::CU_STREAM_LEGACY => context,
                stream => stream,
            };
            let slot = set.attribute.into();
            return self.set(object(recipe, of, slot));
        }
        if let Some(made) = recipe.read::<wire::EventCreate>() {
            let event = made.phEvent.0;
            return self.keep(object(recipe, event, 0));
        }
        if let Some(ended) = recipe.read::<wire::EventDestroyV2>() {
            return self.end_object(ended.hEvent.0);
        }
        self.note_code(recipe);
    }

    fn note_code(&mut self, recipe: Recipe) {
        let context = recipe.context;
        let object = |recipe: Recipe, number: u64, slot: u64| Recipe {
            key: Key::Object(number),
            slot,
            ..recipe
        };
        if let Some(made) = recipe.read::<wire::ModuleLoad<'_>>() {
            let module = made.module.0;
            self.runs.insert(made.first, (FUNCTION_ROW, module));
            let mut body = Vec::new();
            let bare = wire::ModuleLoad {
                image: None,
                image_size: 0,
                payload: 0,
                ..made
            };
            Message::encode(&bare, &mut body);
            let recipe = Recipe {
                body: body.into(),
                ..object(recipe, module, 0)
            };
            return self.keep(recipe);
        }
        if let Some(made) = recipe.read::<wire::LibraryLoad<'_>>() {
            let library = made.library.0;
            self.runs.insert(made.first, (FUNCTION_ROW, library));
            let mut body = Vec::new();
            let bare = wire::LibraryLoad {
                image: None,
                image_size: 0,
                payload: 0,
                ..made
            };
            Message::encode(&bare, &mut body);
            let recipe = Recipe {
                body: body.into(),
                ..object(recipe, library, 0)
            };
            return self.keep(recipe);
        }
        if let Some(ended) = recipe.read::<wire::ModuleUnload>() {
            return self.end_image(ended.hmod.0);
        }
        if let Some(ended) = recipe.read::<wire::LibraryUnload>() {
            return self.end_image(ended.library.0);
        }
        if let Some(made) = recipe.read::<wire::LibraryModule>() {
            let library = made.library.0;
            self.runs.insert(made.first, (FUNCTION_ROW, library));
            let slot = made.module.0;
            return self.keep(object(recipe, library, slot));
        }
        if let Some(made) = recipe.read::<wire::KernelFunction>() {
            let library = self.image_of(made.kernel.0);
            let function = made.function.0;
            self.runs.insert(function, (1, library));
            return self.keep(object(recipe, library, function));
        }
        if let Some(asked) = recipe.read::<wire::ModuleGetGlobalV2<'_>>() {
            let (module, slot) = (asked.hmod.0, slot_of(asked.name));
            return self.set(object(recipe, module, slot));
        }
        if let Some(asked) = recipe.read::<wire::LibraryGetGlobal<'_>>() {
            // Each context has the variable at an address of its own.
            let name = [&context.to_le_bytes(), asked.name].concat();
            let (library, slot) = (asked.library.0, slot_of(&name));
            return self.set(object(recipe, library, slot));
        }
        if let Some(asked) = recipe.read::<wire::LibraryGetManaged<'_>>() {
            let (library, slot) = (asked.library.0, slot_of(asked.name));
            return self.set(object(recipe, library, slot));
        }
        if let Some(made) = recipe.read::<wire::ModuleGetTexRef<'_>>() {
            let (module, slot) = (made.hmod.0, made.pTexRef.0);
            return self.keep(object(recipe, module, slot));
        }
        if let Some(made) = recipe.read::<wire::ModuleGetSurfRef<'_>>() {
            let (module, slot) = (made.hmod.0, made.pSurfRef.0);
            return self.keep(object(recipe, module, slot));
        }
        self.note_functions(recipe);
    }

    fn note_functions(&mut self, recipe: Recipe) {
        // Settings of one function: its number and the setting's are in one.
        let slot = |function: u64, setting: u32| (function << 16) | u64::from(setting);
        let found = recipe
            .read::<wire::KernelSetAttribute>()
            .map(|set| {
                (
                    set.kernel.0,
                    slot(set.kernel.0, (set.dev as u32) << 8 | set.attrib),
                )
            })
            .or_else(|| {
                let set: Option<wire::KernelSetCacheConfig> = recipe.read();
                set.map(|set| (set.kernel.0, slot(set.kernel.0, set.dev as u32)))
            })
            .or_else(|| {
                let set: Option<wire::FuncSetAttribute> = recipe.read();
                set.map(|set| (set.hfunc.0, slot(set.hfunc.0, set.attrib)))
            })
            .or_else(|| {
                let set: Option<wire::FuncSetCacheConfig> = recipe.read();
                set.map(|set| (set.hfunc.0, slot(set.hfunc.0, 0)))
            })
            .or_else(|| {
                let set: Option<wire::FuncSetSharedMemConfig> = recipe.read();
                set.map(|set| (set.hfunc.0, slot(set.hfunc.0, 0)))
            });
        if let Some((function, slot)) = found {
            let image = self.image_of(function);
            return self.set(Recipe {
                key: Key::Object(image),
                slot,
                ..recipe
            });
        }
        match recipe.request {
            id if id == <wire::Link<'_> as Request<'_>>::ID => self.links += 1,
            id if id == <wire::LinkEnd as Request<'_>>::ID => {
                self.links = self.links.saturating_sub(1);
            }
            _ => self.note_memory(recipe),
        }
    }

    fn note_memory(&mut self, recipe: Recipe) {
        let keyed = |recipe: Recipe, key: Key| Recipe { key, ..recipe };
        if recipe.read::<wire::MemoryAlloc>().is_some() {
            let reply = wire::MemoryAllocReply::decode(&recipe.reply);
            if let Some(address) = reply.ok().and_then(|reply| reply.address) {
                self.keep(keyed(recipe, Key::Memory(address)));
            }
            return;
        }
        if recipe.read::<wire::PoolAlloc>().is_some() {
            let reply = wire::PoolAllocReply::decode(&recipe.reply);
            if let Some(address) = reply.ok().and_then(|reply| reply.address) {
                self.keep(keyed(recipe, Key::Memory(address)));
            }
            return;
        }
        let freed = recipe.read::<wire::MemoryFree>().map(|freed| freed.address);
        let freed = freed.or(recipe.read::<wire::PoolFree>().map(|freed| freed.address));
        if let Some(address) = freed {
            if self.is_bound {
                let size = self.size_at(address);
                self.unbind_memory(address, size);
            }
            return self.end_at(Key::Memory(address));
        }
        let pool = recipe.read::<wire::PoolCreate>().map(|made| made.pool.0);
        let pool = pool.or(recipe.read::<wire::PoolOf>().map(|made| made.pool.0));
        if let Some(pool) = pool {
            return self.keep(keyed(recipe, Key::Object(pool)));
        }
        if let Some(set) = recipe.read::<wire::PoolSet>() {
            let slot = set.attribute.into();
            let pool = Key::Object(set.pool.0);
            return self.set(Recipe {
                slot,
                ..keyed(recipe, pool)
            });
        }
        if let Some(ended) = recipe.read::<wire::MemPoolDestroy>() {
            let pool = ended.pool.0;
            self.end_if(|_, recipe| {
                let set: Option<wire::DeviceSetMemPool> = recipe.read();
                set.is_some_and(|set| set.pool.0 == pool)
            });
            return self.end_object(pool);
        }
        if let Some(set) = recipe.read::<wire::DeviceSetMemPool>() {
            let device = Key::Device(set.dev);
            return self.set(keyed(recipe, device));
        }
        if let Some(set) = recipe.read::<wire::SetAccess<'_>>() {
            return self.note_access(&recipe, &set);
        }
        self.note_mapped(recipe);
    }

    fn note_mapped(&mut self, recipe: Recipe) {
        let keyed = |recipe: Recipe, key: Key| Recipe { key, ..recipe };
        if let Some(made) = recipe.read::<wire::PhysicalCreate>() {
            let key = Key::Physical(made.memory);
            return self.keep(keyed(recipe, key));
        }
        if let Some(ended) = recipe.read::<wire::PhysicalRelease>() {
            let memory = ended.memory;
            if !self.is_mapped(memory) {
                return self.end(Key::Physical(memory));
            }
            self.released.insert(memory, ());
            return;
        }
        if recipe.read::<wire::AddressReserve>().is_some() {
            let reply = wire::AddressReserveReply::decode(&recipe.reply);
            if let Some(address) = reply.ok().and_then(|reply| reply.address) {
                self.keep(keyed(recipe, Key::Reserved(address)));
            }
            return;
        }
        if let Some(ended) = recipe.read::<wire::AddressFree>() {
            return self.end_at(Key::Reserved(ended.address));
        }
        if let Some(mapped) = recipe.read::<wire::PhysicalMap>() {
            let key = Key::Mapped(mapped.address);
            return self.keep(keyed(recipe, key));
        }
        if let Some(ended) = recipe.read::<wire::PhysicalUnmap>() {
            return self.unmap(ended.address, ended.size);
        }
        self.note_arrays(recipe);
    }

    fn note_arrays(&mut self, recipe: Recipe) {
        let object = |recipe: Recipe, number: u64, slot: u64| Recipe {
            key: Key::Object(number),
            slot,
            ..recipe
        };
        let array = recipe
            .read::<wire::Array3DCreateV2>()
            .map(|made| made.pHandle.0);
        let other = recipe.read::<wire::MipmappedArrayCreate>();
        if let Some(array) = array.or(other.map(|made| made.pHandle.0)) {
            return self.keep(object(recipe, array, 0));
        }
        if let Some(made) = recipe.read::<wire::ArrayGetPlane>() {
            let (whole, plane) = (made.hArray.0, made.pPlaneArray.0);
            return self.keep(object(recipe, whole, plane));
        }
        if let Some(made) = recipe.read::<wire::MipmappedArrayGetLevel>() {
            let (whole, level) = (made.hMipmappedArray.0, made.pLevelArray.0);
            return self.keep(object(recipe, whole, level));
        }
        if let Some(ended) = recipe.read::<wire::ArrayDestroy>() {
            self.unbind_array(ended.hArray.0);
            return self.end_object(ended.hArray.0);
        }
        if let Some(ended) = recipe.read::<wire::MipmappedArrayDestroy>() {
            self.unbind_array(ended.hMipmappedArray.0);
            return self.end_object(ended.hMipmappedArray.0);
        }
        self.note_textures(recipe);
    }

    fn note_textures(&mut self, recipe: Recipe) {
        let keyed = |recipe: Recipe, key: Key| Recipe { key, ..recipe };
        if recipe.read::<wire::TextureCreate<'_>>().is_some() {
            let reply = wire::TextureCreateReply::decode(&recipe.reply);
            if let Some(texture) = reply.ok().and_then(|reply| reply.object) {
                let key = Key::Texture(recipe.context, texture);
                self.keep(keyed(recipe, key));
            }
            return;
        }
        if recipe.read::<wire::SurfaceCreate>().is_some() {
            let reply = wire::SurfaceCreateReply::decode(&recipe.reply);
            if let Some(surface) = reply.ok().and_then(|reply| reply.object) {
                let key = Key::Surface(recipe.context, surface);
                self.keep(keyed(recipe, key));
            }
            return;
        }
        if let Some(ended) = recipe.read::<wire::TexObjectDestroy>() {
            return self.end_at(Key::Texture(recipe.context, ended.texObject));
        }
        if let Some(ended) = recipe.read::<wire::SurfObjectDestroy>() {
            return self.end_at(Key::Surface(recipe.context, ended.surfObject));
        }
        if let Some(made) = recipe.read::<wire::TexRefCreate>() {
            let reference = Key::Object(made.pTexRef.0);
            return self.keep(keyed(recipe, reference));
        }
        if let Some(ended) = recipe.read::<wire::TexRefDestroy>() {
            return self.end_object(ended.hTexRef.0);
        }
        if let Some(set) = recipe.read::<wire::TextureReferenceSet<'_>>() {
            let reference = Key::Object(set.reference.0);
            let slot = setting_slot(&set);
            self.is_bound |= slot == BINDING;
            return self.set(Recipe {
                slot,
                ..keyed(recipe, reference)
            });
        }
        if let Some(set) = recipe.read::<wire::SurfRefSetArray>() {
            let reference = Key::Object(set.hSurfRef.0);
            self.is_bound = true;
            return self.set(keyed(recipe, reference));
        }
        self.note_graphs(recipe);
    }

    fn note_graphs(&mut self, recipe: Recipe) {
        let keyed = |recipe: Recipe, key: Key| Recipe { key, ..recipe };
        if let Some(made) = recipe.read::<wire::GraphAnchor>() {
            let graph = Key::Object(made.graph.0);
            return self.keep(keyed(recipe, graph));
        }
        if let Some(made) = recipe.read::<wire::GraphCondition>() {
            let graph = Key::Object(made.graph.0);
            return self.keep(keyed(recipe, graph));
        }
        if let Some(made) = recipe.read::<wire::GraphAlloc<'_>>() {
            let graph = Key::Object(made.graph.0);
            return self.keep(keyed(recipe, graph));
        }
        if let Some(ended) = recipe.read::<wire::GraphAnchorEnd>() {
            return self.end_object(ended.graph.0);
        }
        self.obstacle = Some("it shares memory or events with other programs, or has done so");
    }
}

/// The slot of what a texture reference reads.
const BINDING: u64 = 0;

/// Tells settings of a texture reference apart: one is in force of those that bind it, and one of each dimension's modes.
fn setting_slot(set: &wire::TextureReferenceSet<'_>) -> u64 {
    let first = set.words.iter().next().unwrap_or(0);
    let index = match set.setting {
        setting::ADDRESS_MODE => first & 0xffff,
        _ => 0,
    };
    match set.setting {
        setting::ARRAY
        | setting::MIPMAP
        | setting::ADDRESS
        | setting::ADDRESS_2D
        | setting::ADDRESS_2D_UNALIGNED => BINDING,
        other => u64::from(other) << 32 | index,
    }
}

impl Recipes {
    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a request that was posted in a context.
    pub(super) fn note<'a, R: Request<'a>>(&self, context: u64, request: &R) {
        self.note_answered(context, request, None, u64::MAX);
    }

    /// Tells recipes so far from those that are noted later.
    pub(super) fn count(&self) -> u64 {
        self.lock().next
    }

    /// As [`Self::note`], with an answer that the request got; how many recipes there were when it was posted.
    #[cold]
    pub(super) fn note_answered<'a, R: Request<'a>>(
        &self,
        context: u64,
        request: &R,
        reply: Option<&[u8]>,
        before: u64,
    ) {
        let mut body = Vec::with_capacity(64);
        request.encode(&mut body);
        let recipe = Recipe {
            request: R::ID,
            context,
            asked: reply.is_some(),
            body: body.into(),
            reply: reply.unwrap_or_default().into(),
            key: Key::Object(context),
            slot: 0,
        };
        let mut known = self.lock();
        known.before = before;
        known.note(recipe);
    }

    /// The device code of a module or library.
    pub(super) fn keep_image(&self, object: u64, image: KeptImage) {
        self.lock().images.insert(object, Arc::new(image));
    }
}

impl Known {
    /// Those that live, in the order in which they were made.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Recipe> {
        self.recipes.values()
    }

    /// As [`Self::in_order`], with what tells each from those that come later.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u64, &Recipe)> {
        self.recipes
            .iter()
            .map(|(number, recipe)| (*number, recipe))
    }

    /// Whether a recipe lives.
    pub(super) fn has(&self, number: u64) -> bool {
        self.recipes.contains_key(&number)
    }

    /// The place of a module's or library's device code.
    pub(super) fn image(&self, object: u64) -> Option<Arc<KeptImage>> {
        self.images.get(&object).cloned()
    }

    /// Physical memory that goes with its addresses.
    pub(super) fn released(&self) -> impl Iterator<Item = u64> {
        self.released.keys().copied()
    }

    /// The reason why the session can be made nowhere else.
    pub(super) fn obstacle(&self) -> Option<&'static str> {
        let allocates = |recipe: &Recipe| recipe.read::<wire::GraphAlloc<'_>>().is_some();
        let is_shareable = |recipe: &Recipe| {
            let made: Option<wire::MemoryAlloc> = recipe.read();
            made.is_some_and(|made| made.managed_flags != 0)
        };
        if self.obstacle.is_some() {
            return self.obstacle;
        }
        if self.links > 0 {
            return Some("device code is being linked");
        }
        if self.recipes.values().any(allocates) {
            return Some("a graph of it allocates memory");
        }
        if self.recipes.values().any(is_shareable) {
            return Some("it has managed memory of the server's");
        }
        let whole: HashSet<(u64, u64)> = self
            .recipes
            .values()
            .filter_map(Recipe::read::<wire::PhysicalMap>)
            .map(|map| (map.memory, map.size))
            .collect();
        let is_out_of_reach = |recipe: &Recipe| {
            let made: Option<wire::PhysicalCreate> = recipe.read();
            made.is_some_and(|made| !whole.contains(&(made.memory, made.size)))
        };
        let out_of_reach = self.recipes.values().any(is_out_of_reach);
        out_of_reach.then_some("it has physical memory that is not mapped as a whole")
    }

    /// Bytes that the recipes take, without device code that lies in the program.
    pub(super) fn bytes(&self) -> usize {
        let bodies = self.recipes.values();
        let bodies = bodies.map(|recipe| recipe.body.len() + recipe.reply.len());
        let images = self.images.values().map(|image| match &**image {
            KeptImage::Bytes(bytes) => bytes.len(),
            KeptImage::Read(_) => 0,
        });
        self.recipes.len() * (size_of::<Recipe>() + 2 * size_of::<u64>())
            + bodies.sum::<usize>()
            + images.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that leave nothing behind, or what contents and the driver's own knowledge tell of.
    const TRANSIENT: &str = "Act Advise CloseShared CollectiveDeregister CollectiveEnd CollectiveId CollectiveMake CollectiveRegister \
        CollectiveRun CollectiveState CollectiveText CollectiveVersion Copy CopyBox Credit DevicePath EventRecord EventState GetAccess Goodbye GraphAdjust \
        GraphBring GraphChange GraphEnable GraphEnd GraphMake GraphRun Grouping HostDone HostFunction Launch LaunchFirst LinkAdd \
        LinkComplete MemoryPlace Memset Occupancy Ping PoolGet Prefetch Read ReadBox ReadShared ShareHost StreamOperations \
        SynchronizeContext SynchronizeEvent SynchronizeStream TensorMap TextureReferenceGet UnshareHost Usage WindowMap WindowReserve \
        WindowUnmap WriteBox WriteBulk WriteInline WriteShared cuArray3DGetDescriptor_v2 cuArrayGetMemoryRequirements \
        cuArrayGetSparseProperties cuCtxGetLimit cuCtxResetPersistingL2Cache cuDeviceGetGraphMemAttribute cuDeviceGraphMemTrim \
        cuDeviceSetGraphMemAttribute cuEventElapsedTime_v2 cuFuncGetAttribute cuFuncLoad cuMemGetInfo_v2 cuMemPoolTrimTo \
        cuMipmappedArrayGetMemoryRequirements cuMipmappedArrayGetSparseProperties cuStreamWaitEvent";

    #[test]
    fn every_request_is_noted_or_leaves_nothing() {
        let transient: Vec<&str> = TRANSIENT.split_whitespace().collect();
        for id in 0..=u16::MAX {
            let is_message =
                wire::describe(id, &[]).map_or(true, |text| !text.starts_with("unknown call"));
            let Some(name) = wire::call_name(id).filter(|_| is_message) else {
                continue;
            };
            let known = usize::from(is_noted(id)) + usize::from(transient.contains(&name));
            assert_eq!(
                known, 1,
                "{name} has to be noted, or to be among those that leave nothing"
            );
        }
    }

    fn post<'a, R: Request<'a>>(recipes: &Recipes, context: u64, request: &R) {
        recipes.note(context, request);
    }

    fn ask<'a, R: Request<'a>>(
        recipes: &Recipes,
        context: u64,
        request: &R,
        reply: &impl Fn(&mut Vec<u8>),
    ) {
        let mut body = Vec::new();
        reply(&mut body);
        recipes.note_answered(context, request, Some(&body), recipes.count());
    }

    fn count(recipes: &Recipes) -> usize {
        let known = recipes.lock();
        assert_eq!(
            known.by_key.values().map(Vec::len).sum::<usize>(),
            known.recipes.len()
        );
        assert!(known.by_key.values().all(|numbers| !numbers.is_empty()));
        known.recipes.len()
    }

    fn allocated(recipes: &Recipes, context: u64, address: u64) {
        let request = wire::MemoryAlloc {
            size: 512,
            managed_flags: 0,
        };
        let reply = wire::MemoryAllocReply {
            address: Some(address),
        };
        ask(recipes, context, &request, &|out| {
            Message::encode(&reply, out)
        });
    }

    #[test]
    fn recipes_end_with_their_objects() {
        let recipes = Recipes::default();
        let stream = wire::StreamHandle(11);
        post(
            &recipes,
            1,
            &wire::StreamCreate {
                phStream: stream,
                Flags: 0,
            },
        );
        let value = [0; 64];
        for _ in 0..3 {
            let attribute = wire::StreamAttribute {
                stream,
                attribute: 1,
                value: &value,
            };
            post(&recipes, 1, &attribute);
        }
        allocated(&recipes, 1, 0x1000);
        assert_eq!(count(&recipes), 3);
        post(&recipes, 1, &wire::StreamDestroyV2 { hStream: stream });
        let freed = wire::MemoryFree { address: 0x1000 };
        ask(&recipes, 1, &freed, &|_| {});
        assert_eq!(count(&recipes), 0);
    }

    #[test]
    fn address_given_out_again_outlives_its_free() {
        let recipes = Recipes::default();
        allocated(&recipes, 1, 0x1000);
        // Another thread is given the address, and notes it before the one that has freed it hears of that.
        let before = recipes.count();
        allocated(&recipes, 1, 0x1000);
        let freed = wire::MemoryFree { address: 0x1000 };
        recipes.note_answered(1, &freed, Some(&[]), before);
        assert_eq!(count(&recipes), 1);
        recipes.note_answered(1, &freed, Some(&[]), recipes.count());
        assert_eq!(count(&recipes), 0);
        let mapped = |memory| wire::PhysicalMap {
            address: 0x20_0000,
            size: 0x20_0000,
            offset: 0,
            memory,
        };
        post(&recipes, 1, &mapped(7));
        let before = recipes.count();
        post(&recipes, 1, &mapped(8));
        let unmapped = wire::PhysicalUnmap {
            address: 0x20_0000,
            size: 0x20_0000,
        };
        recipes.note_answered(1, &unmapped, Some(&[]), before);
        assert!(recipes.lock().is_mapped(8) && !recipes.lock().is_mapped(7));
    }

    #[test]
    fn context_ends_what_it_holds_and_nothing_else() {
        let recipes = Recipes::default();
        for number in [1, 2] {
            let made = wire::ContextCreate {
                device: 0,
                flags: 0,
                context: wire::ContextHandle(number),
            };
            ask(&recipes, 0, &made, &|_| {});
            post(
                &recipes,
                number,
                &wire::EventCreate {
                    phEvent: wire::EventHandle(20 + number),
                    Flags: 0,
                },
            );
            allocated(&recipes, number, number << 20);
            let peer = wire::CtxEnablePeerAccess {
                peerContext: wire::ContextHandle(3 - number),
                Flags: 0,
            };
            ask(&recipes, number, &peer, &|_| {});
        }
        let physical = wire::PhysicalCreate {
            device: 0,
            size: 2 << 20,
            flags: 0,
            memory: 31,
        };
        ask(&recipes, 1, &physical, &|_| {});
        post(
            &recipes,
            0,
            &wire::ContextDestroy {
                context: wire::ContextHandle(1),
            },
        );
        // The other context, its event, its memory; and the physical memory.
        assert_eq!(count(&recipes), 4);
    }

    #[test]
    fn mapped_memory_outlives_its_release() {
        let recipes = Recipes::default();
        let physical = wire::PhysicalCreate {
            device: 0,
            size: 2 << 20,
            flags: 0,
            memory: 31,
        };
        ask(&recipes, 1, &physical, &|_| {});
        let map = wire::PhysicalMap {
            address: 4 << 20,
            size: 2 << 20,
            offset: 0,
            memory: 31,
        };
        post(&recipes, 1, &map);
        post(&recipes, 1, &wire::PhysicalRelease { memory: 31 });
        assert_eq!(count(&recipes), 2);
        assert_eq!(recipes.lock().released().collect::<Vec<_>>(), [31]);
        let unmap = wire::PhysicalUnmap {
            address: 4 << 20,
            size: 2 << 20,
        };
        ask(&recipes, 1, &unmap, &|_| {});
        assert_eq!(count(&recipes), 0);
    }

    fn mapped(recipes: &Recipes, memory: u64, address: u64, size: u64) {
        let physical = wire::PhysicalCreate {
            device: 0,
            size: 2 << 20,
            flags: 0,
            memory,
        };
        ask(recipes, 0, &physical, &|_| {});
        let map = wire::PhysicalMap {
            address,
            size,
            offset: 0,
            memory,
        };
        post(recipes, 0, &map);
    }

    fn access(recipes: &Recipes, address: u64, size: u64, words: &[u64]) {
        let set = wire::SetAccess {
            pool: wire::MemoryPoolHandle(0),
            address,
            size,
            words: words.len() as u32,
            access: wire::List::Values(words),
        };
        ask(recipes, 0, &set, &|_| {});
    }

    /// Places of what rights are kept for, and the locations that have them.
    fn rights(recipes: &Recipes) -> Vec<(u64, u64, Vec<u64>)> {
        let known = recipes.lock();
        let kept = known.in_order().filter_map(|recipe| {
            let set: wire::SetAccess<'_> = recipe.read()?;
            Some((set.address, set.size, set.access.iter().collect()))
        });
        kept.collect()
    }

    #[test]
    fn rights_end_with_each_mapping() {
        const SIZE: u64 = 2 << 20;
        let recipes = Recipes::default();
        mapped(&recipes, 31, SIZE, SIZE);
        mapped(&recipes, 32, 2 * SIZE, SIZE);
        access(&recipes, SIZE, 2 * SIZE, &[1, 0, 3, 1, 1, 3]);
        access(&recipes, SIZE, SIZE, &[1, 1, 1]);
        let unmap = wire::PhysicalUnmap {
            address: 2 * SIZE,
            size: SIZE,
        };
        ask(&recipes, 0, &unmap, &|_| {});
        let left = [(SIZE, SIZE, vec![1, 0, 3]), (SIZE, SIZE, vec![1, 1, 1])];
        assert_eq!(rights(&recipes), left);
    }

    #[test]
    fn memory_that_is_mapped_in_part_stays() {
        let recipes = Recipes::default();
        mapped(&recipes, 31, 2 << 20, 2 << 20);
        assert_eq!(recipes.lock().obstacle(), None);
        mapped(&recipes, 32, 8 << 20, 1 << 20);
        assert!(recipes.lock().obstacle().is_some());
    }

    #[test]
    fn each_context_has_its_place_of_a_variable() {
        let recipes = Recipes::default();
        for context in [1, 2, 2] {
            let asked = wire::LibraryGetGlobal {
                want_dptr: true,
                want_bytes: true,
                library: wire::LibraryHandle(5),
                name: b"table",
            };
            ask(&recipes, context, &asked, &|_| {});
        }
        assert_eq!(count(&recipes), 2);
    }

    #[test]
    fn settings_of_functions_end_with_their_library() {
        let recipes = Recipes::default();
        let digest = [0; 32];
        let load = wire::LibraryLoad {
            digest: &digest,
            size: 3,
            payload: 7,
            image_size: 3,
            image: Some(b"ptx"),
            num_options: 0,
            options: wire::List::Values(&[]),
            values: wire::List::Values(&[]),
            num_library_options: 0,
            library_options: wire::List::Values(&[]),
            library_values: wire::List::Values(&[]),
            first: 1000,
            room: 0,
            log_room: 0,
            info_room: 0,
            library: wire::LibraryHandle(5),
        };
        ask(&recipes, 1, &load, &|_| {});
        recipes.keep_image(5, KeptImage::Bytes(Arc::new(b"ptx".to_vec())));
        let named = wire::KernelFunction {
            kernel: wire::KernelHandle(1002),
            function: wire::FunctionHandle(9),
        };
        post(&recipes, 1, &named);
        for value in [1, 2] {
            let set = wire::FuncSetAttribute {
                hfunc: wire::FunctionHandle(9),
                attrib: 8,
                value,
            };
            ask(&recipes, 1, &set, &|_| {});
        }
        assert_eq!(count(&recipes), 3);
        {
            let known = recipes.lock();
            let kept = known
                .in_order()
                .find_map(|recipe| recipe.read::<wire::LibraryLoad<'_>>());
            let kept = kept.expect("it is kept");
            assert_eq!((kept.image, kept.payload), (None, 0));
            let image = known.image(5).and_then(|image| image.bytes());
            assert_eq!(image.expect("it is kept").as_slice(), b"ptx");
        }
        post(
            &recipes,
            1,
            &wire::LibraryUnload {
                library: wire::LibraryHandle(5),
            },
        );
        assert_eq!(
            (count(&recipes), recipes.lock().image(5).is_none()),
            (0, true)
        );
    }

    #[test]
    fn last_binding_of_a_reference_is_kept() {
        let recipes = Recipes::default();
        let array = wire::Array3DCreateV2 {
            pHandle: wire::ArrayHandle(8),
            pAllocateArray: CUDA_ARRAY3D_DESCRIPTOR {
                Width: 8,
                Height: 0,
                Depth: 0,
                Format: 1,
                NumChannels: 1,
                Flags: 0,
            }
            .into(),
        };
        ask(&recipes, 1, &array, &|_| {});
        let bind = |array, which, first| {
            let set = wire::TextureReferenceSet {
                reference: wire::TexrefHandle(5),
                setting: which,
                array: wire::ArrayHandle(array),
                mipmap: wire::MipmappedArrayHandle(0),
                words: wire::List::Values(&[first, 64, 0, 0, 0, 0]),
            };
            ask(&recipes, 1, &set, &|_| {});
        };
        allocated(&recipes, 1, 0x1000);
        bind(0, setting::ADDRESS, 0x1000);
        bind(8, setting::ARRAY, 1);
        bind(0, setting::ADDRESS_MODE, 0);
        bind(0, setting::ADDRESS_MODE, 1);
        assert_eq!(count(&recipes), 5);
        let destroyed = wire::ArrayDestroy {
            hArray: wire::ArrayHandle(8),
        };
        post(&recipes, 1, &destroyed);
        assert_eq!(count(&recipes), 3);
        bind(0, setting::ADDRESS, 0x1000);
        let freed = wire::MemoryFree { address: 0x1000 };
        ask(&recipes, 1, &freed, &|_| {});
        assert_eq!(count(&recipes), 2);
    }

    #[test]
    fn shared_memory_is_an_obstacle() {
        let recipes = Recipes::default();
        assert_eq!(recipes.lock().obstacle(), None);
        ask(&recipes, 1, &wire::Share { kind: 0, number: 1 }, &|_| {});
        assert!(recipes.lock().obstacle().is_some());
    }
}
